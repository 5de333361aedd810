"""HSDS: the object storage schema for HDF5 of the HDF Group.."""
