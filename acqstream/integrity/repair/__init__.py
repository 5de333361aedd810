"""Rebuilds a torn or lost index, for datasets of any writer; changes nothing else."""
