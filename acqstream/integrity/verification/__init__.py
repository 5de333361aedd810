"""Proof of a dataset: its files, its journal, every frame, its receipt."""
