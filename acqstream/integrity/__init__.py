"""Proof and repair of datasets: recover after a crash, verify, rebuild an index."""
