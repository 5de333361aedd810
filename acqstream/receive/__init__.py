"""Image streams that other programs send already, recorded through the client."""
