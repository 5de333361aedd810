"""Bytes to bytes: each codec under its standard name."""
