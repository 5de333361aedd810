"""Datasets over HTTP: an address becomes an object of a container, real or virtual."""
