"""The gate: is a number worse than it was, and since when?"""
