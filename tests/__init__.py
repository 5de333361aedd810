"""Tests mirror the package; those of its whole, of faults and of other programs lie beside."""
