"""A job's log, in any pieces, becomes a Run: the wire, what it measured, and the gates that it must pass."""

from platforms.results.log_reader import numbers

__all__ = ["numbers"]
