"""Graphcore's IPUs through PopTorch 3.x. A process drives all IPUs of its replicas: models/steps/ipu.py.

What is checked here against PopTorch's own source (github.com/graphcore/poptorch at 2023-09-29, the last one) names the
file. `poptorch` and `popdist` come with the Poplar SDK only, so they are imported when an IPU is asked for.
docs/accelerators.md says how a benchmark runs there.
"""

from __future__ import annotations

import argparse
import importlib
from typing import Any, Dict, Optional, Tuple

from models.accelerators import DrivenByProgram
from models.accelerators.refusals import of_any_program, refuse_first
from models.errors import ImpossibleRequest
from models.world import World

DTYPES = ("fp16", "fp32")  # the first is the best
# The modules with which a new IPU begins, by benchmark and IPUs of a replica: the stages of the
# HPDC'24 paper.
CUTS: Dict[Tuple[str, int], Tuple[str, ...]] = {
    ("resnet50", 2): ("layer3",),  # conv1 to layer2 | layer3 to the classifier
    ("cosmoflow", 2): ("convolutions.3",),  # the first three convolutions | the rest
}

# Optimiser steps of one call: the host is asked less often, the learning rate stays for as many steps. A warm-up of 10
# steps still has two calls, of which --time-limit-s needs the second.
STEPS_PER_CALL = 5
# Tiles x memory of a tile, by ipuHardwareVersion(): the number of Poplar's targets ipu1, ipu2, ipu21
# (popart_compiler/source/CodeletsCompilation.cpp).
MEMORY_BYTES = {1: 1216 * 256 * 1024, 2: 1472 * 624 * 1024, 21: 1472 * 624 * 1024}
BOW_FLOPS = {"fp16": 350e12, "fp32": 87.5e12}  # Bow-2000's data sheet, per IPU


class Ipu(DrivenByProgram):
    """The IPUs of one rank."""

    type = "ipu"
    family = "ipu"
    no_split: Optional[str] = None

    def __init__(self) -> None:
        import torch  # imported late, because `refuse` must not need it

        self.poptorch = imported("poptorch")
        self.device = torch.device("cpu")  # of the tensors that PopTorch takes and returns

    def count(self) -> int:
        """Return how many IPUs one program could get now. PopTorch takes 1, 2, 4, … 64 of them."""
        sizes = [size for size in (1, 2, 4, 8, 16, 32, 64) if self.poptorch.ipuHardwareIsAvailable(size)]
        return max(sizes, default=0)

    def select(self, world: World) -> None:
        """PopTorch or poprun chooses the IPUs. Raises ImpossibleRequest if there is none."""
        if self.count() == 0:
            raise ImpossibleRequest(
                "PopTorch sees no IPU: run `gc-info -l` where the job runs, and look at what the job asked for"
            )

    def steps_per_batch(self, common_divisor: int) -> int:
        return 1 if common_divisor % STEPS_PER_CALL else STEPS_PER_CALL

    def dtypes(self) -> Tuple[str, ...]:
        return DTYPES

    def settle(self, dtype: str) -> None:
        """There is no TF32 to switch off. What `dtype` means stands in the program's options."""

    def peak_flops(self, dtype: str) -> Optional[float]:
        """Return the Bow's peak as a bound: PopTorch cannot tell it from the slower IPU of the same version."""
        return BOW_FLOPS[dtype]

    def facts(self, dtype: str) -> Dict[str, object]:
        return {
            "type": self.type,
            "name": f"Graphcore IPU, version {self.version()}",
            "count": self.count(),
            "memory_bytes": self.memory_bytes(),
            "driver": None,
            "peak_flops": self.peak_flops(dtype),
            "peak_is": "data sheet of a Bow IPU, the fastest of its version",
        }

    def memory_bytes(self) -> Optional[int]:
        return MEMORY_BYTES.get(self.version())

    def version(self) -> int:
        """Return the version of the IPUs; -1: PopTorch does not know it.

        poptorch.ipuHardwareVersion() asks for a device of one IPU, and a partition of fixed size offers none.
        """
        return int(self.poptorch.poptorch_core.ipuHardwareVersion(self.count()))


def refuse(options: argparse.Namespace) -> None:
    """Raise ImpossibleRequest for what IPUs cannot do, as far as the options alone show it."""
    refuse_first("ipu", of_any_program(options, DTYPES))
    cut_of(options.benchmark, options.devices_per_replica or 1)


def cut_of(benchmark: str, ipus: int) -> Tuple[str, ...]:
    """Return the modules with which a new IPU begins, for a replica on so many.

    Raises ImpossibleRequest where they are not known.
    """
    if ipus == 1:
        return ()
    if (benchmark, ipus) not in CUTS:
        known = [str(number) for name, number in sorted(CUTS) if name == benchmark]
        raise ImpossibleRequest(
            f"it is not known where to cut {benchmark} for {ipus} IPUs; use --devices-per-replica "
            f"{' or '.join(['1', *known])} (`devices_per_replica:` in a platform's file), or add a cut to CUTS in "
            "models/accelerators/ipu.py"
        )
    return CUTS[(benchmark, ipus)]


def imported(name: str) -> Any:
    """Import a package of the Poplar SDK. Raises ImpossibleRequest, with where it comes from."""
    try:
        return importlib.import_module(name)
    except (ImportError, AssertionError) as error:  # AssertionError: PopTorch was made for another torch
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == name
        cause = "" if is_missing else f" ({' '.join(str(error).split())})"
        raise ImpossibleRequest(
            f"--device ipu needs the package {name.partition('.')[0]}, which cannot be imported{cause}: it is in "
            "Graphcore's Poplar SDK 3.x (a wheel there, and the image graphcore/pytorch:3.3.0) and not on PyPI, and it "
            "needs a machine with IPUs"
        ) from error
