"""Other packages that start sandboxes, to measure beside: each in a file that imports it."""
