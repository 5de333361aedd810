"""Messages between producer and daemon, their encoding, and the session table. No sockets, no clock."""
