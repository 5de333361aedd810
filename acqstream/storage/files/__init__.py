"""Files of this machine: durability, direct I/O, locks."""
