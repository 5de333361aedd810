"""Names of axes that have a meaning in N5 containers."""

SPATIAL = ("z", "y", "x")
COMPONENT = "c"
