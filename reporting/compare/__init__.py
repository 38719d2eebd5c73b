"""Two groups of runs beside each other: how far they differ, how sure that is, and where the difference lies."""
