"""The NDTiff log: from frames in memory to bytes on disk."""
