"""One file of chosen runs, from which a stranger can recompute every number of a publication."""
