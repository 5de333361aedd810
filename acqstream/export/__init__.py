"""Exports of a dataset into one file of another format: HDF5, OME-TIFF, TIFF stacks."""
