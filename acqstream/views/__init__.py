"""Views: functions of the log and a cursor, made in a process of their own."""
