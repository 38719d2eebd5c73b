"""A bundle: one file with all from which a stranger recomputes the numbers of some runs, and its verification."""
