"""CosmoFlow as MLPerf HPC trains it: it predicts four cosmological parameters from a cube of counts at four redshifts.

Reference: mlcommons/hpc, cosmoflow (configs/cosmo.yaml, HPC v1.0 to v3.0), in Keras; net: Mathuriya et al. 2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, Tuple

import torch
from torch import nn
from torch.nn import functional

from models.data.cosmoflow import open_folder
from models.errors import ImpossibleRequest
from models.settings import CSX_STEPS, QUICK_WINDOW_S, Configuration, Shape, Size

WORKLOAD_VERSION = 3  # raise it with each change of what is computed, read or timed
MLPERF_NAME = "cosmoflow"
MLPERF_RULES = ("hpc", "3.0.0")

VARIANTS = {"mlperf": "the reference's net: five convolutions of 32 to 512 channels, dropout 0.5"}
REDSHIFTS = 4  # channels of a sample
TARGETS = 4
CHANNELS = (32, 64, 128, 256, 512)
HIDDEN = (128, 64)
KERNEL = 3
EDGE = KERNEL // 2  # voxels of zeros on each side, so that a cube keeps its size
SLOPE = 0.3  # of Keras' LeakyReLU where it is below zero; PyTorch's is 0.01
DROPOUT = 0.5
RANGE = 1.2  # of the tanh at the end, so that it reaches the targets, which lie between -1 and 1
POOLS_BF16 = torch.__version__ >= "2.1"  # whether torch can pool bf16 on a processor

# --- configurations, sizes and data -----------------------------------------------------------------------------------

AUGMENTS = False
LOADER = "thread"
CHANNELS_LAST = torch.channels_last_3d
UNSUPPORTED: Dict[str, str] = {}
# ipu: the micro-batch of the HPDC'24 paper, in gbs32 too. csx: a GPU's, until a CS system has been tried.
TUNED_BATCH = {"cpu": 4, "cuda": 64, "ipu": 1, "csx": 64}
CONFIGURATIONS = {
    # In fp32 the net does not fit into the memory of IPUs (HPDC'24, section 4.2).
    "gbs32": Configuration(global_batch=32, dtype="fp32", channels_last=False, dtype_on={"ipu": "fp16"}),
    "tuned": Configuration(global_batch=None, dtype="auto", channels_last=True),
}
_SMOKE = Size((32, 32, 32), 2, 3, 4, local_batch=2)
_CUBE = (128, 128, 128)
_CSX = Size(_CUBE, CSX_STEPS[0], 3, CSX_STEPS[1])
SIZES: Dict[str, Dict[str, Size]] = {
    # A pipeline needs several micro-batches, so an IPU has the configuration's batch.
    "smoke": {"cpu": _SMOKE, "cuda": _SMOKE, "ipu": replace(_SMOKE, local_batch=None)},
    "quick": {
        "cpu": Size(_CUBE, 2, 3, 1, local_batch=2, window_s=QUICK_WINDOW_S),
        "cuda": Size(_CUBE, 10, 3, 50),
        "csx": _CSX,
    },
    "subset": {  # 2,048 samples, as the HPDC'24 paper
        "cpu": Size(_CUBE, 10, 3, 50),
        "cuda": Size(_CUBE, 10, 3, 50),
        "csx": _CSX,
    },
    "full": {
        "cpu": Size(_CUBE, 10, 3, None),
        "cuda": Size(_CUBE, 10, 3, None),
        "csx": replace(_CSX, steps_per_window=None),
    },
}


def open_data(folder: str, *, variant: str, shape: Shape, augment: bool, seed: int) -> Any:
    """Open the data set. `augment` and `seed` have no effect, because nothing is augmented."""
    return open_folder(folder, shape=shape)


def sample_bytes(dtype: str, variant: str, shape: Shape) -> int:
    """Estimate the device memory of one more sample: 672 MiB at 128x128x128 in fp32, 384 MiB in a 16-bit dtype.

    Raises ImpossibleRequest, as `check`, because a request asks for this first.

    Measured on a processor at 64 and 96 cubed: live tensors at their peak, in the backward pass of the first pooling
    (640 and 352 MiB at 128; the resident size of the process grows by 620 in fp32), and two int16 samples, of which one
    is computed with and one copied ahead. The algorithms' workspace comes on top.
    """
    check(shape)
    at_128 = (384 if dtype in ("bf16", "fp16") else 672) * 2**20
    return int(at_128 * math.prod(shape) / math.prod(_CUBE))


# --- the net ---------------------------------------------------------------------------------------------------------


class Convolution(nn.Conv3d):
    """A convolution that keeps the size of a cube. On a processor it pads bf16 cubes of two voxels' depth by itself.

    This works around a bug of oneDNN 3.1 to 3.12 (at least) on AVX-512 without AMX: where oneDNN pads a first side that
    is shorter than the kernel, it advances in its input one voxel too early. The gradient of the weights then sums over
    memory beyond a buffer: it is always wrong, and at times infinite. Only the last convolution of samples with a first
    side of 32 is that short.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.device.type == "cpu" and x.dtype == torch.bfloat16 and 1 < x.shape[2] < KERNEL:
            padded = functional.pad(x, (0, 0, 0, 0, EDGE, EDGE))
            return functional.conv3d(padded, self.weight, self.bias, padding=(0, EDGE, EDGE))
        return super().forward(x)


class CosmoFlow(nn.Module):
    """Maps N x 4 x D x H x W, the logarithms of the counts, to N x 4 parameters between -1.2 and 1.2."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        channels = (REDSHIFTS, *CHANNELS)
        widths = (_features(shape), *HIDDEN)
        self.convolutions = nn.ModuleList(
            Convolution(inputs, outputs, KERNEL, padding=EDGE) for inputs, outputs in zip(channels, CHANNELS)
        )
        self.hidden = nn.ModuleList(nn.Linear(inputs, outputs) for inputs, outputs in zip(widths, HIDDEN))
        self.head = nn.Linear(HIDDEN[-1], TARGETS)
        self._initialise()

    def _initialise(self) -> None:
        """Initialise as Keras by default: Glorot's uniform for weights, zero for biases."""
        for module in self.modules():
            if isinstance(module, (nn.Conv3d, nn.Linear)):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for convolution in self.convolutions:
            # The reference pools last. Because the activation is monotonic, the numbers are the same, and this way it
            # is computed for an eighth of them.
            x = functional.leaky_relu(_halved(convolution(x)), SLOPE, inplace=True)
        x = x.permute(0, 2, 3, 4, 1).flatten(1)  # channels last, as Keras flattens: a weight means the same
        for layer in self.hidden:
            x = functional.dropout(functional.leaky_relu(layer(x), SLOPE), DROPOUT, self.training)
        parameters: torch.Tensor = RANGE * torch.tanh(self.head(x).float())
        return parameters


def _halved(x: torch.Tensor) -> torch.Tensor:
    """Max-pool 2x2x2.

    On a processor autocast would convert to fp32 and back for it, but it does not for the form that returns indices.
    """
    if POOLS_BF16:
        return functional.max_pool3d(x, 2, return_indices=True)[0]
    return functional.max_pool3d(x, 2)


def check(shape: Shape) -> None:
    """Raise ImpossibleRequest for a shape that cannot be halved five times."""
    step = 2 ** len(CHANNELS)
    if len(shape) != 3 or any(side < step or side % step for side in shape):
        raise ImpossibleRequest(
            f"cosmoflow halves a sample five times and cannot take {'x'.join(map(str, shape))}: it needs three sides "
            f"that are multiples of {step}; use --shape 128x128x128, as the real data, or for a trial --size smoke, "
            "32x32x32"
        )


def _features(shape: Shape) -> int:
    """Return how many numbers the convolutions leave of a sample."""
    check(shape)
    return CHANNELS[-1] * math.prod(shape) // 2 ** (3 * len(CHANNELS))


def build(variant: str, shape: Shape) -> CosmoFlow:
    return CosmoFlow(shape)


# --- FLOP ------------------------------------------------------------------------------------------------------------


def _multiply_adds(shape: Shape) -> Iterator[float]:
    """Yield the multiply-adds of one sample, layer by layer."""
    voxels = float(math.prod(shape))
    for inputs, outputs in zip((REDSHIFTS, *CHANNELS), CHANNELS):
        yield KERNEL**3 * inputs * outputs * voxels
        voxels /= 2**3
    widths = (_features(shape), *HIDDEN, TARGETS)
    yield from (float(inputs * outputs) for inputs, outputs in zip(widths, widths[1:]))


def flop_per_sample(variant: str, shape: Shape) -> Tuple[float, float]:
    """Return the FLOP of one sample, forward and forward + backward: two per multiply-add.

    Backward is twice forward, without the gradient of the sample, which is not computed. Only convolutions and full
    layers are counted.
    """
    flop = [2 * count for count in _multiply_adds(shape)]
    return sum(flop), 3 * sum(flop) - flop[0]


# --- training --------------------------------------------------------------------------------------------------------


class Prepare:
    """Turns counts as they were read, N x D x H x W x 4 int16, into log(1 + count), N x 4 x D x H x W of `dtype`.

    It runs on the device where the counts are. The permuted view of counts that lie channels last *is* torch's
    channels_last_3d and costs nothing; the plain format is written out. The logarithm is taken in fp32.
    """

    def __init__(self, data: Any, device: Any, dtype: torch.dtype, channels_last: bool) -> None:
        self.format = CHANNELS_LAST if channels_last else torch.contiguous_format
        self.dtype = dtype

    def __call__(self, counts: torch.Tensor) -> torch.Tensor:
        x = counts.permute(0, 4, 1, 2, 3).to(torch.float32, memory_format=self.format)
        return x.log1p_().to(self.dtype)


def criterion(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the squared error, mean over parameters and batch."""
    return functional.mse_loss(outputs.float(), targets.float())


# The reference's configs/cosmo.yaml.
BASE_LEARNING_RATE = 0.001  # at a global batch size of 64, scaled linearly with it
BASE_BATCH = 64
WARMUP_EPOCHS = 4
DECAY = {32: 0.25, 64: 0.125}  # after this epoch, counted from 0, the rate is this share of the peak
MOMENTUM = 0.9
WEIGHT_DECAY = 0.0


def make_optimizer(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=BASE_LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)


@dataclass(frozen=True)
class Schedule:
    """The learning rate of each optimiser step, as in the reference's utils/optimizers.py.

    It goes linearly, epoch by epoch, from the base rate to the peak; it is a quarter of the peak from epoch 33 on and
    an eighth from epoch 65 on, counted from 0. Below a batch of 64 the peak is less than the base, so the rate falls.
    A run shorter than the four epochs of the warm-up warms up for a tenth of its steps instead, step by step.
    """

    steps: int
    steps_per_epoch: int
    global_batch: int

    @property
    def peak(self) -> float:
        return BASE_LEARNING_RATE * self.global_batch / BASE_BATCH

    @property
    def warmup_steps(self) -> int:
        epochs = WARMUP_EPOCHS * self.steps_per_epoch
        return epochs if self.steps >= epochs else self.steps // 10

    def rate(self, step: int) -> float:
        """Return the learning rate of optimiser step `step`, counted from 0."""
        epoch = step // self.steps_per_epoch
        if step < self.warmup_steps:
            is_by_epochs = self.warmup_steps == WARMUP_EPOCHS * self.steps_per_epoch
            done = epoch / WARMUP_EPOCHS if is_by_epochs else step / self.warmup_steps
            return BASE_LEARNING_RATE + (self.peak - BASE_LEARNING_RATE) * done
        factors = [factor for after, factor in DECAY.items() if epoch > after]
        return self.peak * min(factors, default=1.0)

    def mlperf(self) -> Dict[str, object]:
        """Return it under MLPerf HPC's names (ruleset 3.0.0, closed_cosmoflow), with the values the reference logs."""
        return {
            "opt_name": "sgd",
            "opt_base_learning_rate": self.peak,
            "opt_learning_rate_warmup_epochs": self.warmup_steps / self.steps_per_epoch,
            "opt_learning_rate_warmup_factor": self.global_batch / BASE_BATCH,
            "opt_learning_rate_decay_boundary_epochs": sorted(DECAY),
            "opt_learning_rate_decay_factor": max(DECAY.values()),
            "opt_weight_decay": WEIGHT_DECAY,
            "dropout": DROPOUT,
        }
