"""How a device with a compiler of its own says what it cannot do, and what none of them can.

Each of these modules has a function `refuse` (csx.py, ipu.py). What it refuses is known from the
options alone, without torch and without the device, so `train --check` refuses it on the machine
that submits the job.
"""

from __future__ import annotations

import argparse
from typing import Iterable, List, NamedTuple, Tuple

from models.errors import ImpossibleRequest


class Refusal(NamedTuple):
    """Whether something is asked for, as what option, why it is impossible, and what to do instead."""

    is_asked: bool
    what: str
    reason: str
    advice: str = "leave it out"


def refuse_first(device: str, refusals: Iterable[Refusal]) -> None:
    """Raise ImpossibleRequest for the first of these that is asked for."""
    for refusal in refusals:
        if refusal.is_asked:
            raise ImpossibleRequest(
                f"--device {device} does not take {refusal.what}: {refusal.reason}; {refusal.advice}"
            )


def of_any_program(options: argparse.Namespace, dtypes: Tuple[str, ...]) -> List[Refusal]:
    """Return what no device takes whose compiler makes one program of a step.

    dtypes: those in which it trains.
    """
    return [
        Refusal(
            options.dtype not in ("auto", *dtypes),
            f"--dtype {options.dtype}",
            "the device does not train in it",
            f"use {' or '.join(('auto', *dtypes))}",
        ),
        Refusal(options.channels_last == "on", "--channels-last on", "its compiler chooses memory formats"),
        Refusal(options.compile, "--compile", "that is torch.compile, and its own compiler always runs"),
        Refusal(options.decompose, "--decompose", "its own program loads and exchanges in each step"),
        Refusal(options.inject_copy_s is not None, "--inject-copy-s", "its own program copies the batches"),
    ]
