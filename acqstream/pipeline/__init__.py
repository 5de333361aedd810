"""From frames in memory to bytes on disk: the log and its views."""
