"""DeepCAM as MLPerf HPC trains it: it finds the pixels of cyclones and atmospheric rivers in a climate simulation.

Reference: mlcommons/hpc, deepcam (HPC v1.0 to v3.0). The net is in models/deeplab.py, the optimiser in models/lamb.py.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Dict, Tuple

import torch
from torch import nn

from models import deeplab
from models.data.deepcam import open_folder
from models.errors import ImpossibleRequest
from models.lamb import Lamb
from models.settings import QUICK_WINDOW_S, Configuration, Shape, Size

WORKLOAD_VERSION = 2  # raise it with each change of what is computed, read or timed
MLPERF_NAME = "deepcam"
MLPERF_RULES = ("hpc", "3.0.0")

VARIANTS = {"mlperf": "the reference's net: DeepLabv3+ on Xception at output stride 16, decoded by deconvolutions"}

# --- configurations, sizes and data -----------------------------------------------------------------------------------

AUGMENTS = False
LOADER = "thread"
CHANNELS_LAST = torch.channels_last
UNSUPPORTED: Dict[str, str] = {}
TUNED_BATCH = {"cpu": 1, "cuda": 16}
CONFIGURATIONS = {
    "gbs32": Configuration(global_batch=32, dtype="fp32", channels_last=False),
    "tuned": Configuration(global_batch=None, dtype="auto", channels_last=True),
}
_SMOKE = Size((96, 144), 2, 3, 4, local_batch=2)
_WHOLE = (768, 1152)
SIZES: Dict[str, Dict[str, Size]] = {
    "smoke": {"cpu": _SMOKE, "cuda": _SMOKE},
    "quick": {"cpu": Size(_WHOLE, 1, 2, 1, local_batch=1, window_s=QUICK_WINDOW_S), "cuda": Size(_WHOLE, 10, 3, 50)},
    "subset": {"cpu": Size(_WHOLE, 10, 3, 50), "cuda": Size(_WHOLE, 10, 3, 50)},  # 512 samples, as the HPDC'24 paper
    "full": {"cpu": Size(_WHOLE, 10, 3, None), "cuda": Size(_WHOLE, 10, 3, None)},
}


def open_data(folder: str, *, variant: str, shape: Shape, augment: bool, seed: int) -> Any:
    """Open the data set. `augment` and `seed` have no effect, because nothing is augmented."""
    return open_folder(folder, shape=shape)


def sample_bytes(dtype: str, variant: str, shape: Shape) -> int:
    """Estimate the device memory of one more sample: 4,670 MiB at 768x1152 in fp32, 2,392 MiB in a 16-bit dtype.

    Raises ImpossibleRequest, as `check`, because a request asks for this first.

    Measured on a processor at 384x576: live tensors at their peak, early in the backward pass (4,554 and 2,277 MiB at
    768x1152; the resident size of the process grows by 4,610 in fp32), and two fp32 samples as they were read, of which
    one is computed with and one copied ahead. The algorithms' workspace comes on top.
    """
    check(shape)
    whole = (2392 if dtype in ("bf16", "fp16") else 4670) * 2**20
    return int(whole * math.prod(shape) / math.prod(_WHOLE))


# --- the net ---------------------------------------------------------------------------------------------------------


def check(shape: Shape) -> None:
    """Raise ImpossibleRequest for a shape that the net does not return as large as it was."""
    step = deeplab.OUTPUT_STRIDE
    if len(shape) != 2 or any(side < step or side % step for side in shape) or max(shape) == step:
        raise ImpossibleRequest(
            f"deepcam halves a sample four times and doubles it again, and cannot take {'x'.join(map(str, shape))}: it "
            f"needs two sides that are multiples of {step}, not both {step}; use --shape 768x1152, as the real data, "
            "or for a trial --size smoke, 96x144"
        )


def build(variant: str, shape: Shape) -> deeplab.DeepLab:
    """Return the net with new weights, the same for all shapes. Raises ImpossibleRequest, as `check`."""
    check(shape)
    return deeplab.DeepLab()


def flop_per_sample(variant: str, shape: Shape) -> Tuple[float, float]:
    """Return the FLOP of one sample, forward and forward + backward."""
    return deeplab.flop(shape)


# --- training --------------------------------------------------------------------------------------------------------


class Prepare:
    """Turns fields as they were read, N x H x W x 16 fp32, into N x 16 x H x W of `dtype`, scaled to 0 to 1.

    A variable's smallest value in the whole set becomes 0, its largest 1; one that never changes becomes 0. It runs on
    the device where the fields are, in fp32, because in bf16 pressures that differ by less than 512 Pa may be equal. It
    makes one pass over the sample, and one more where it casts or writes out the plain format; the permuted view of
    fields that lie channels last *is* torch's channels_last.
    """

    def __init__(self, data: Any, device: Any, dtype: torch.dtype, channels_last: bool) -> None:
        minimum = data.minimum.double()
        extent = data.maximum.double() - minimum
        scale = torch.where(extent > 0, 1 / extent, torch.zeros_like(extent))
        self.scale = scale.float().to(device)
        self.offset = (-minimum * scale).float().to(device)
        self.format = CHANNELS_LAST if channels_last else torch.contiguous_format
        self.dtype = dtype

    def __call__(self, fields: torch.Tensor) -> torch.Tensor:
        x = torch.addcmul(self.offset, fields, self.scale).permute(0, 3, 1, 2)
        return x.to(self.dtype, memory_format=self.format)


# The reference's class weights (its train.py): of background, cyclones and rivers, by their frequency.
FREQUENCIES = (0.986267818390377, 0.0004578708870701058, 0.01327431072255291)
WEIGHTS = tuple(frequency**-0.125 for frequency in FREQUENCIES)


@functools.lru_cache(maxsize=None)
def _weights(device: torch.device) -> torch.Tensor:
    """Copy the weights to a device once: a copy in each step would make the host wait."""
    return torch.tensor(WEIGHTS, device=device)


def criterion(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the weighted cross-entropy of N x 3 x H x W logits and N x H x W classes.

    It is the mean over pixels, not over weights.
    """
    losses = nn.functional.cross_entropy(
        logits.float(), labels.long(), weight=_weights(logits.device), reduction="none"
    )
    return losses.mean()


# The reference's run_scripts/run_training.sh. It trains with LAMB, as for all of its published convergence points.
LEARNING_RATE = 0.0055  # at every batch size
BETAS = (0.9, 0.999)
EPS = 1e-6
WEIGHT_DECAY = 1e-2
MAX_NORM = 1.0  # of all gradients together
WARMUP_STEPS = 400
MILESTONES = (800,)  # optimiser steps after the warm-up
DECAY = 0.1


def make_optimizer(model: nn.Module) -> Lamb:
    return Lamb(
        model.parameters(), lr=LEARNING_RATE, betas=BETAS, eps=EPS, weight_decay=WEIGHT_DECAY, max_norm=MAX_NORM
    )


@dataclass(frozen=True)
class Schedule:
    """The learning rate of each optimiser step, as in the reference's MultiStepLRWarmup.

    It rises linearly for 400 steps, and is a tenth from step 1,200 on. (The reference's code ends its warm-up a 400th
    below the peak that it logs; this one reaches the peak.) It depends neither on epochs nor on the batch size. A run
    shorter than the warm-up warms up for a tenth of its steps.
    """

    steps: int
    steps_per_epoch: int
    global_batch: int

    @property
    def warmup_steps(self) -> int:
        return WARMUP_STEPS if self.steps >= WARMUP_STEPS else self.steps // 10

    def rate(self, step: int) -> float:
        """Return the learning rate of optimiser step `step`, counted from 0."""
        if step < self.warmup_steps:
            return LEARNING_RATE * (step + 1) / self.warmup_steps
        passed = sum(step >= self.warmup_steps + milestone for milestone in MILESTONES)
        return LEARNING_RATE * DECAY**passed

    def mlperf(self) -> Dict[str, object]:
        """Return it under MLPerf HPC's names (ruleset 3.0.0, closed_deepcam with its files lamb and multistep)."""
        return {
            "opt_name": "LAMB",
            "opt_lr": LEARNING_RATE,
            "opt_betas": list(BETAS),
            "opt_eps": EPS,
            "opt_weight_decay": WEIGHT_DECAY,
            "opt_bias_correction": True,
            "opt_grad_averaging": True,
            "opt_max_grad_norm": MAX_NORM,
            "scheduler_type": "multistep",
            "scheduler_milestones": list(MILESTONES),
            "scheduler_decay_rate": DECAY,
            "scheduler_lr_warmup_steps": self.warmup_steps,
            "scheduler_lr_warmup_factor": 1.0,  # the warm-up ends at this times the rate
            "batchnorm_group_size": 1,  # ranks that normalise together
        }
