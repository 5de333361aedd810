"""The web face: datasets over HTTP for viewers, from a process of its own that only reads files."""
