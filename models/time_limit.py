"""--time-limit-s: ends a run after its warm-up if the scheduler's time limit would cut it off later."""

from __future__ import annotations

import math
import time
from typing import Optional, Tuple

from models.errors import ImpossibleRequest
from models.meter import MOST_STEPS
from models.ranks import Ranks
from models.request import Request
from models.training_setup import TrainingSetup

# Of --decompose (models/decompose.py): how many phases there are at most, what each has at least, and takes at most.
MOST_PHASES = 6
LEAST_STEPS = 5
MOST_S = 10.0


class TimeLimit:
    """Measures the warm-up and refuses the run if it would take too long. The slowest rank decides for all."""

    def __init__(self, setup: TrainingSetup, ranks: Ranks) -> None:
        self._setup = setup
        self._ranks = ranks
        self._first: Optional[Tuple[int, float]] = None  # optimiser steps of the first batch, and when they were done

    def after(self, steps: int) -> None:
        """Take note that so many optimiser steps are done. Raises ImpossibleRequest, on all ranks, after the warm-up.

        The first batch is not timed, because in it libraries set themselves up and search for algorithms. So a warm-up
        of one batch is not checked.
        """
        limit_s = self._setup.options.time_limit_s
        warmup_steps = self._setup.request.warmup_steps
        if limit_s is None or steps > warmup_steps or (self._first is not None and steps < warmup_steps):
            return
        self._setup.accelerator.synchronize()
        now_s = time.perf_counter()
        if self._first is None:
            self._first = (steps, now_s)
            return
        first_steps, first_s = self._first
        step_s = (now_s - first_s) / (steps - first_steps)
        own_times = (now_s - self._setup.started_s, step_s)
        elapsed_s, step_s = (max(times) for times in zip(*self._ranks.gather(own_times)))
        check_time(self._setup.request, elapsed_s, step_s, limit_s, decompose=self._setup.options.decompose)


def check_time(request: Request, elapsed_s: float, step_s: float, limit_s: float, decompose: bool = False) -> None:
    """Raise ImpossibleRequest if the windows, and the phases of --decompose, do not end within the limit.

    elapsed_s: since the start of the process, up to the end of the warm-up. step_s: of one optimiser step.
    """
    steps = window_steps(request, step_s)
    phases_s = MOST_PHASES * phase_s(steps, step_s) if decompose else 0.0
    needed_s = elapsed_s + request.windows * steps * step_s + phases_s
    if needed_s > limit_s:
        raise ImpossibleRequest(
            f"this run needs about {needed_s:.0f} s and --time-limit-s is {limit_s:g}: start and warm-up took "
            f"{elapsed_s:.0f} s, and {request.windows} windows of {steps} steps take {step_s:.3g} s each step"
            f"{f', and --decompose {phases_s:.0f} s' if decompose else ''}; ask for "
            f"at least {1.2 * needed_s:.0f} s, fewer --windows or --steps-per-window, or a smaller --size"
        )


def window_steps(request: Request, step_s: float) -> int:
    """Return how many optimiser steps a window has where one takes `step_s` seconds."""
    if request.window_s and step_s:
        return max(request.steps_per_window, min(MOST_STEPS, math.ceil(request.window_s / step_s)))
    return request.steps_per_window


def phase_s(steps: int, step_s: float) -> float:
    """Return what a phase of --decompose takes at most, with its one step that is not timed. steps: of a window."""
    return (LEAST_STEPS + 1) * step_s + min(MOST_S, steps * step_s)
