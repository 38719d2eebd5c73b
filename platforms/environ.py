"""The environment of programs that a worker thread starts."""

from __future__ import annotations

import os


def copied() -> dict[str, str]:
    """Our environment as it is now, to be given to a program.

    Without one, a program gets what this process has at that moment, and pytest changes that on the main thread before
    and after each test: the kernel then reads memory that is gone, and answers "Bad address" (CPython 3.11, `env=None`
    of subprocess).
    """
    while True:
        try:
            return dict(os.environ)
        except KeyError:  # a variable went while the others were copied
            continue
