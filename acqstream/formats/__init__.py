"""File formats, one folder each. Only `registry` knows them all."""
