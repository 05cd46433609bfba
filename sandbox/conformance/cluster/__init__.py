"""A plan on many hosts: a Dask cluster whose workers have engines of their own."""
