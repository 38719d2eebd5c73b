"""`python -m platforms doctor NAME`: the command, and its steps that look at Python, packages and data sets."""
