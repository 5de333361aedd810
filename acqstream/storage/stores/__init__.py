"""Objects by key: how formats and mirrors read and write."""
