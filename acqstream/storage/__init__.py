"""The only place that opens data files or maps memory: all platform calls and all durability rules."""
