"""What `acqstream bench` measures."""
