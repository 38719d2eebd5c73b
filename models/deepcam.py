"""DeepCAM as MLPerf HPC trains it: tropical cyclones and atmospheric rivers, pixel by pixel, in a climate simulation.

Reference: mlcommons/hpc, deepcam (HPC v1.0 to v3.0). The net is in deeplab.py.
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
from models.errors import Impossible
from models.lamb import Lamb
from models.settings import QUICK_WINDOW_S, Configuration, Shape, Size

WORKLOAD_VERSION = 2  # raised by whoever changes what is computed, read or timed
MLPERF_NAME = "deepcam"
MLPERF_RULES = ("hpc", "3.0.0")

VARIANTS = {"mlperf": "the reference's net: DeepLabv3+ on Xception at output stride 16, decoded by deconvolutions"}

# --- what is asked of it ---------------------------------------------------------------------------------------------

AUGMENTS = False
LOADER = "thread"
CHANNELS_LAST = torch.channels_last
TUNED_BATCH = {"cpu": 1, "cuda": 16}
CONFIGURATIONS = {
    "gbs32": Configuration(global_batch=32, dtype="fp32", channels_last=False),
    "tuned": Configuration(global_batch=None, dtype="auto", channels_last=True),
}
_SMOKE, _WHOLE = Size((96, 144), 2, 3, 4, local_batch=2), (768, 1152)
SIZES: Dict[str, Dict[str, Size]] = {
    "smoke": {"cpu": _SMOKE, "cuda": _SMOKE},
    "quick": {"cpu": Size(_WHOLE, 1, 2, 1, local_batch=1, window_s=QUICK_WINDOW_S), "cuda": Size(_WHOLE, 10, 3, 50)},
    "subset": {"cpu": Size(_WHOLE, 10, 3, 50), "cuda": Size(_WHOLE, 10, 3, 50)},  # 512 samples, as the HPDC'24 paper
    "full": {"cpu": Size(_WHOLE, 10, 3, None), "cuda": Size(_WHOLE, 10, 3, None)},
}


def open_data(folder: str, *, shape: Shape, augment: bool, seed: int) -> Any:
    """Nothing is augmented or drawn: `augment` and `seed` are every benchmark's."""
    return open_folder(folder, shape=shape)


def sample_bytes(dtype: str, variant: str, shape: Shape) -> int:
    """Device memory of one more sample in training, in bytes: 4,670 MiB at 768x1152 in fp32, 2,392 in a 16-bit dtype.

    Raises Impossible, as `check`: this is what a request asks first.

    Measured on a processor at 384x576: live tensors at their peak, early in the backward pass (4,554 and 2,277 MiB at
    768x1152; the resident size of the process grows by 4,610 in fp32), and two fp32 samples as they were read: the one
    at work and the one that is copied ahead. The algorithms' workspace comes on top.
    """
    check(shape)
    whole = (2392 if dtype in ("bf16", "fp16") else 4670) * 2**20
    return int(whole * math.prod(shape) / math.prod(_WHOLE))


# --- the net ---------------------------------------------------------------------------------------------------------


def check(shape: Shape) -> None:
    """Raises Impossible for a shape that does not come back from the net as large as it was."""
    step = deeplab.OUTPUT_STRIDE
    if len(shape) != 2 or any(side < step or side % step for side in shape) or max(shape) == step:
        raise Impossible(
            f"deepcam halves a sample four times and doubles it again, and cannot take {'x'.join(map(str, shape))}: it "
            f"needs two sides that are multiples of {step}, not both {step}; use --shape 768x1152, as the real data, "
            "or for a trial --size smoke, 96x144"
        )


def build(variant: str, shape: Shape) -> deeplab.DeepLab:
    """The net is the same for all shapes that it can take. Raises Impossible, as `check`."""
    check(shape)
    return deeplab.DeepLab()


def flop_per_sample(variant: str, shape: Shape) -> Tuple[float, float]:
    """Forward, and forward + backward."""
    return deeplab.flop(shape)


# --- training --------------------------------------------------------------------------------------------------------


class Prepare:
    """Fields as they were read, N x H x W x 16 fp32, to N x 16 x H x W of `dtype`: 0 to 1 between the set's extremes.

    It works where the fields are, in fp32: to bf16, pressures that differ by less than 512 Pa may be the same. One pass
    over the sample, and one more where it is cast or written out in the plain format; the permuted view of fields that
    lie channels last *is* torch's channels_last. A variable that never changes becomes 0.
    """

    def __init__(self, data: Any, device: Any, dtype: torch.dtype, channels_last: bool) -> None:
        minimum, extent = data.minimum.double(), data.maximum.double() - data.minimum.double()
        scale = torch.where(extent > 0, 1 / extent, torch.zeros_like(extent))
        self.scale, self.offset = scale.float().to(device), (-minimum * scale).float().to(device)
        self.format = CHANNELS_LAST if channels_last else torch.contiguous_format
        self.dtype = dtype

    def __call__(self, fields: torch.Tensor) -> torch.Tensor:
        x = torch.addcmul(self.offset, fields, self.scale).permute(0, 3, 1, 2)
        return x.to(self.dtype, memory_format=self.format)


# The reference's class weights, in its train.py: of background, cyclones and rivers, by their frequency.
FREQUENCIES = (0.986267818390377, 0.0004578708870701058, 0.01327431072255291)
WEIGHTS = tuple(frequency**-0.125 for frequency in FREQUENCIES)


@functools.lru_cache(maxsize=None)
def _weights(device: torch.device) -> torch.Tensor:
    """Once a device: to copy them in each step would make it wait."""
    return torch.tensor(WEIGHTS, device=device)


def criterion(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Weighted cross-entropy of N x 3 x H x W logits and N x H x W classes: the mean over pixels, not over weights."""
    losses = nn.functional.cross_entropy(
        logits.float(), labels.long(), weight=_weights(logits.device), reduction="none"
    )
    return losses.mean()


def iou(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Intersection over union of N x 3 x H x W logits and N x H x W classes, as the reference's utils/metric.py.

    Of each sample by itself: the mean over classes, where a class that is neither there nor predicted counts as 1; then
    the mean over samples. So it differs from the IoU of all pixels at once, and depends on nothing but the samples.
    """
    predicted = torch.softmax(logits.float(), 1).argmax(1).flatten(1)  # softmax makes ties of what nearly is one
    actual = labels.flatten(1)
    of_classes = []
    for each in range(deeplab.CLASSES):
        is_predicted, is_actual = predicted == each, actual == each
        both, either = (is_predicted & is_actual).sum(1), (is_predicted | is_actual).sum(1)
        of_classes.append(torch.nan_to_num(both / (deeplab.CLASSES * either).float(), nan=1 / deeplab.CLASSES))
    return torch.stack(of_classes, 1).sum(1).mean()


# The reference's run_scripts/run_training.sh, which trains with LAMB, as all of its published convergence points do.
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
    """The learning rate of each optimiser step, as the reference's MultiStepLRWarmup: up in a line for 400 steps, and a
    tenth from step 1,200 on. (Its code stops a 400th below the peak, which it logs; ours arrives.)

    Neither epochs nor the batch size matter to it. A run shorter than the warm-up warms up for a tenth of its steps.
    """

    steps: int
    steps_per_epoch: int
    global_batch: int

    @property
    def warmup_steps(self) -> int:
        return WARMUP_STEPS if self.steps >= WARMUP_STEPS else self.steps // 10

    def rate(self, step: int) -> float:
        """Of optimiser step `step`, counted from 0."""
        if step < self.warmup_steps:
            return LEARNING_RATE * (step + 1) / self.warmup_steps
        return LEARNING_RATE * DECAY ** sum(step >= self.warmup_steps + milestone for milestone in MILESTONES)

    def mlperf(self) -> Dict[str, object]:
        """MLPerf HPC's names for it (ruleset 3.0.0, closed_deepcam with its files lamb and multistep)."""
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
            "scheduler_lr_warmup_factor": 1.0,  # of the rate: what the warm-up arrives at
            "batchnorm_group_size": 1,  # ranks that normalise together
        }
