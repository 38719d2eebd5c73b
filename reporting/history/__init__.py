"""The history: a line for every job of every test, kept for years, from which everything else is computed."""
