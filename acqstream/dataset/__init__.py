"""What people read with: Dataset, Level, follow."""
