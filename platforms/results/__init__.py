"""A job's log, in any pieces, becomes a Run: the wire, what it measured, and the gates that it must pass.

What other programs print: plain_log gives their lines, foreign reads numbers and values from them.
"""

from platforms.results.foreign import field, numbers, one_number
from platforms.results.plain_log import plain_text

__all__ = ["field", "numbers", "one_number", "plain_text"]
