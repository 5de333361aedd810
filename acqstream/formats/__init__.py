"""What is on disk: one folder per format. Only `registry` knows which formats there are."""
