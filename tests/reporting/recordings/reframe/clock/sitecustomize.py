"""Python imports this when it starts: the clock is RECORDING_NIGHT days ahead of 2026-01-01 at 01:00 UTC."""

import os
import time

_START_S = 1767229200.0
_real = time.time
_shift_s = _START_S + 86400 * int(os.environ["RECORDING_NIGHT"]) - _real()
time.time = lambda: _real() + _shift_s
