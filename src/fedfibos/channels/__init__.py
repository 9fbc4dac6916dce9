"""Which tensor dimensions are the same channels, and the slices and blocks that are cut along them."""
