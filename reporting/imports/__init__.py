"""Imports: what other programs have recorded becomes lines of the history."""
