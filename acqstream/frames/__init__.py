"""The frames of a dataset as an array that can be read: once, for readers, web, mirrors and exports."""
