"""Benchmarks of `acqstream bench`."""
