"""The public reading side: Dataset, Level, follow."""
