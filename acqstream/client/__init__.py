"""The producer: acquisition software sends frames with it."""
