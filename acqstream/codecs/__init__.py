"""Bytes to bytes: each codec under its standard name.

Every codec has `encode(data, ...)` and `decode(data, size)`. decode gives exactly `size` bytes or raises
CorruptDataset, which names the codec but no file (that is the caller's to add), and takes no more memory than `size`
and what the codec itself needs, whatever the data claim. Both leave the interpreter to other threads.
"""
