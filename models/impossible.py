"""What devices with a compiler of their own cannot do, as far as the options alone show it.

It is known without torch and without the device, so `train --check` refuses it on the machine that submits the job.
"""

from __future__ import annotations

import argparse
import os
from typing import List, Mapping, Tuple

from models.errors import ImpossibleRequest

CSX_BACKEND = "HPC_ML_BENCH_CSX_BACKEND"  # CSX, or CPU for a trial
# The first is the best. The CSX backend always trains in mixed precision (cerebras-pytorch 2.10.0,
# pytorch/backend/ltc_backend.py), and bf16 needs no scaler.
CSX_DTYPES = ("bf16",)
CSX_TRIAL_DTYPES = ("fp32", "bf16")
IPU_DTYPES = ("fp16", "fp32")

LEAVE_OUT = "leave it out"
Refusal = Tuple[bool, str, str, str]  # whether it is asked for, how, why it is impossible, what to do


def refuse(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> None:
    """Raise ImpossibleRequest for what `train` cannot do on the device that the options name."""
    refusals: List[Refusal] = []
    if options.device == "csx":
        refusals = _on_csx(options, on_wafer=environ.get(CSX_BACKEND, "CSX") != "CPU")
    elif options.device == "ipu":
        refusals = [_dtype(options, IPU_DTYPES)]
    for is_asked, what, reason, advice in refusals:
        if is_asked:
            raise ImpossibleRequest(f"--device {options.device} does not take {what}: {reason}; {advice}")


def _on_csx(options: argparse.Namespace, *, on_wafer: bool) -> List[Refusal]:
    spread = options.devices_per_replica or 1
    everywhere = [
        (
            options.mode == "blocking",
            "--mode blocking",
            "samples are streamed while the system computes",
            LEAVE_OUT,
        ),
        (options.skip_corrupt, "--skip-corrupt", "the nodes that read do not say what they skipped", LEAVE_OUT),
        (
            options.inject_stall_s is not None,
            "--inject-stall-s",
            "other nodes read the samples, and we cannot delay them",
            LEAVE_OUT,
        ),
        (options.warmup_steps == 0, "--warmup-steps 0", "the first step compiles", "use at least 1"),
        (spread > 1, f"--devices-per-replica {spread}", "each CS system holds a whole copy of the model", LEAVE_OUT),
        _dtype(options, CSX_DTYPES if on_wafer else CSX_TRIAL_DTYPES),
    ]
    on_cluster = [
        (
            options.cache != "as-is",
            f"--cache {options.cache}",
            "the memory of the nodes that read cannot be seen from here",
            LEAVE_OUT,
        ),
        (
            options.configuration == "gbs32" and options.dtype == "auto",
            "--configuration gbs32",
            "it is in fp32, and a CS system trains in mixed precision",
            "use tuned, in a platform's file `configurations: [tuned]`",
        ),
    ]
    return [*everywhere, *(on_cluster if on_wafer else ())]


def _dtype(options: argparse.Namespace, dtypes: Tuple[str, ...]) -> Refusal:
    is_asked = options.dtype not in ("auto", *dtypes)
    return is_asked, f"--dtype {options.dtype}", "it does not train in it", f"use one of auto, {', '.join(dtypes)}"
