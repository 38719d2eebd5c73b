"""How long each step takes in the fake cluster. A real one waits for seconds and minutes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timings:
    """All values are in seconds. The values of a real cluster are in brackets."""

    settle_s: float = 0.02  # from the end of a pod's containers to the end of its phase (1.1)
    retry_s: float = 0.15  # before a failed step is tried again; doubled each time up to eightfold (1 to 15)
    job_backoff_s: float = 0.1  # before a Job replaces a failed pod, doubled each time up to eightfold (10 to 600)
    lost_s: float = 0.3  # from the loss of a node until the node controller notices it (40 to 50)

    def backoff(self, first_s: float, times: int) -> float:
        """Return the pause after the `times`-th failure, counted from 1."""
        return first_s * (1 << min(max(times - 1, 0), 3))
