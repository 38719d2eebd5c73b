"""What devices with a compiler of their own cannot do, as far as the options alone show it.

It is known without torch and without the device, so `train --check` refuses it on the machine that submits the job.
"""

from __future__ import annotations

import argparse
import os
from typing import Dict, Iterable, List, Mapping, Tuple

from models.errors import ImpossibleRequest

CSX_BACKEND = "HPC_ML_BENCH_CSX_BACKEND"  # CSX, or CPU for a trial
# The first is the best. The CSX backend always trains in mixed precision (cerebras-pytorch 2.10.0,
# pytorch/backend/ltc_backend.py), and bf16 needs no scaler.
CSX_DTYPES = ("bf16",)
CSX_TRIAL_DTYPES = ("fp32", "bf16")
IPU_DTYPES = ("fp16", "fp32")
# The modules with which a new IPU begins, by benchmark and IPUs of a replica: the stages of the HPDC'24 paper.
IPU_CUTS: Dict[Tuple[str, int], Tuple[str, ...]] = {
    ("resnet50", 2): ("layer3",),  # conv1 to layer2 | layer3 to the classifier
    ("cosmoflow", 2): ("convolutions.3",),  # the first three convolutions | the rest
}

LEAVE_OUT = "leave it out"
Refusal = Tuple[bool, str, str, str]  # whether it is asked for, how, why it is impossible, what to do


def refuse(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> None:
    """Raise ImpossibleRequest for what `train` cannot do on the device that the options name."""
    refusals: List[Refusal] = []
    if options.device == "csx":
        refusals = _on_csx(options, on_wafer=environ.get(CSX_BACKEND, "CSX") != "CPU")
    elif options.device == "ipu":
        refusals = [_dtype(options, IPU_DTYPES)]
        ipu_cut(options.benchmark, options.devices_per_replica or 1)
    refuse_first(options.device, refusals)


def refuse_first(device: str, refusals: Iterable[Refusal]) -> None:
    """Raise ImpossibleRequest for the first of these that is asked for."""
    for is_asked, what, reason, advice in refusals:
        if is_asked:
            raise ImpossibleRequest(f"--device {device} does not take {what}: {reason}; {advice}")


def ipu_cut(benchmark: str, ipus: int) -> Tuple[str, ...]:
    """Return the modules with which a new IPU begins, for a replica on so many. Raises ImpossibleRequest: not known."""
    if ipus == 1:
        return ()
    if (benchmark, ipus) not in IPU_CUTS:
        known = [str(number) for name, number in sorted(IPU_CUTS) if name == benchmark]
        raise ImpossibleRequest(
            f"it is not known where to cut {benchmark} for {ipus} IPUs; use --devices-per-replica "
            f"{' or '.join(['1', *known])} (`devices_per_replica:` in a platform's file), or add a cut to IPU_CUTS in "
            "models/impossible.py"
        )
    return IPU_CUTS[(benchmark, ipus)]


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
        (options.inject_slow is not None, "--inject-slow", "the cluster makes its steps by itself", LEAVE_OUT),
        (
            options.cache != "as-is",
            f"--cache {options.cache}",
            "the memory of the nodes that read cannot be seen from here",
            LEAVE_OUT,
        ),
        (
            options.configuration == "gbs32" and options.dtype == "auto",
            "--configuration gbs32",
            "it trains in fp32, and a CS system always trains in mixed precision",
            "use --configuration tuned (`configurations: [tuned]` in a platform's file)",
        ),
    ]
    return [*everywhere, *(on_cluster if on_wafer else ())]


def _dtype(options: argparse.Namespace, dtypes: Tuple[str, ...]) -> Refusal:
    is_asked = options.dtype not in ("auto", *dtypes)
    advice = f"use {' or '.join(('auto', *dtypes))}"
    return is_asked, f"--dtype {options.dtype}", "the device does not train in it", advice
