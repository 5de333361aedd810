"""What travels between producer and daemon: messages, their encoding, the session table. No sockets, no clock."""
