"""Neuroglancer precomputed volumes, with a file for each chunk or in shards. Source: the public volume format."""
