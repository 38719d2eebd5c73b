"""Imports: what ReFrame has recorded becomes lines of the history."""
