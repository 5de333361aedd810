"""The status page: its words, the list of datasets, small pictures of frames."""
