"""Watches a daemon from another process, through its status and its files: for pages, metrics and notices."""
