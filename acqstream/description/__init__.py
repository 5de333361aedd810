"""What frames mean, each with its evidence: distances, times, positions, orientation, channels, plates. Pure."""
