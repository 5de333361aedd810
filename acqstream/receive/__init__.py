"""Records image streams that other programs send, through the client."""
