"""normgeom: the invariances and the geometry of neural-network normalization."""
