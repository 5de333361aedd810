"""OME-Zarr: images as Zarr arrays with resolution levels. Zarr v3 core, OME-NGFF 0.5."""
