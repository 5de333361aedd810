"""A torn or lost index made again, for datasets of any writer; nothing else is touched."""
