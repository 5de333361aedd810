"""Virtual cameras: frames whose content follows from their number, and producers that send them."""
