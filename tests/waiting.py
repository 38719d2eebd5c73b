"""Waiting for what must come: for longer than any machine takes, and not a moment longer than it takes."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 150.0


def until(true: Callable[[], object], what: str = "it does not happen", *, longest_s: float = 0.02) -> None:
    """longest_s: between two looks; the first ones come one right after the other."""
    deadline, pause_s = time.monotonic() + PATIENCE_S, 0.002
    while not true():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(pause_s)
        pause_s = min(longest_s, 1.5 * pause_s)
