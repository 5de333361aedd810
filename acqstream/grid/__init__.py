"""Integer geometry of chunked arrays; no I/O."""
