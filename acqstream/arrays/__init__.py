"""The array that frames make up: axes, places, gaps, mosaics, space. Pure."""
