"""The process that receives frames over ZeroMQ."""
