"""ResNet-50 v1.5 on ImageNet as MLPerf trains it: the net, its loss, optimiser, learning rate and FLOP.

Reference: mlcommons/training, retired_benchmarks/resnet-tf2 (last in MLPerf Training v4.0). Net: He et al. 2015 with
the stride in the 3x3 convolution (v1.5). Names and shapes of the parameters are torchvision's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
from torch import nn

from models.data.imagenet import ImageNet, open_folder
from models.errors import ImpossibleRequest
from models.settings import CSX_STEPS, QUICK_WINDOW_S, Configuration, Shape, Size, shape_text

WORKLOAD_VERSION = 2  # raise it with each change of what is computed, read or timed
MLPERF_NAME = "resnet"
MLPERF_RULES = ("training", "4.0.0")  # the last with ResNet

VARIANTS = {
    "v1.5": "the stem of the paper by He et al.: 7x7, stride 2",
    "epcc": "the stem of the code behind the HPDC'24 paper: 3x3, stride 1, 3.9 times the work; only to compare with it",
}
CLASSES = 1000
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))  # blocks, channels of the 3x3, stride of the first block
EXPANSION = 4
TRUNCATED_DEVIATION = 0.87962566103423978  # of a unit normal that is cut off at -2 and 2


# --- configurations, sizes and data -----------------------------------------------------------------------------------


CONFIGURATIONS = {
    "gbs32": Configuration(global_batch=32, dtype="fp32", channels_last=False),
    "tuned": Configuration(global_batch=None, dtype="auto", channels_last=True),
}
SIZES: Dict[str, Dict[str, Size]] = {
    "smoke": {
        "cpu": Size((64, 64), 2, 3, 4, local_batch=4),
        "cuda": Size((64, 64), 2, 3, 4, local_batch=4),
        "ipu": Size((64, 64), 2, 3, 4),  # the configuration's batch, because a pipeline needs several micro-batches
    },
    "quick": {
        "cpu": Size((224, 224), 2, 3, 1, window_s=QUICK_WINDOW_S),
        "cuda": Size((224, 224), 10, 3, 50),
        "csx": Size((224, 224), CSX_STEPS[0], 3, CSX_STEPS[1]),
    },
    "subset": {  # 2,048 samples, as HPDC'24
        "cpu": Size((224, 224), 10, 3, 50),
        "cuda": Size((224, 224), 10, 3, 50),
        "csx": Size((224, 224), CSX_STEPS[0], 3, CSX_STEPS[1]),
    },
    "full": {
        "cpu": Size((224, 224), 10, 3, None),
        "cuda": Size((224, 224), 10, 3, None),
        "csx": Size((224, 224), CSX_STEPS[0], 3, None),
    },
}
# A processor's rate does not grow above 8 samples, so it gets 32, as in gbs32; a GPU's hardly grows above 256. An IPU
# has the micro-batch of the HPDC'24 paper, in gbs32 too. For a CS system it is a GPU's until one has been tried.
TUNED_BATCH = {"cpu": 32, "cuda": 256, "ipu": 1, "csx": 256}
AUGMENTS = True
LOADER = "process"
CHANNELS_LAST = torch.channels_last
UNSUPPORTED: Dict[str, str] = {}


def sample_bytes(dtype: str, variant: str, shape: Shape) -> int:
    """Estimate the device memory of one more sample, in bytes: about 95 MiB at 224x224 in a 16-bit dtype.

    fp32 needs twice as much, the epcc stem four times as much.
    """
    factor = 1 if dtype in ("bf16", "fp16") else 2
    if variant == "epcc":
        factor *= 4
    return 95 * 2**20 * factor * shape[0] * shape[1] // 224**2


def open_data(folder: str, *, variant: str, shape: Shape, augment: bool, seed: int) -> ImageNet:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ImpossibleRequest(f"ResNet-50 trains on squares, not on {shape_text(shape)}; give --shape 224x224")
    return open_folder(folder, image_size=shape[0], augment=augment, seed=seed)


# --- the net ---------------------------------------------------------------------------------------------------------


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


class Bottleneck(nn.Module):
    """Convolutions: 1x1 to fewer channels, 3x3, 1x1 to four times as many channels; the sum with the input.

    Where shapes differ, the input goes through a 1x1 convolution.
    """

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * channels
        self.conv1 = _convolution(inputs, channels, 1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = _convolution(channels, channels, 3, stride)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = _convolution(channels, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: Optional[nn.Sequential] = None
        if inputs != outputs:
            self.downsample = nn.Sequential(_convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        out: torch.Tensor = self.relu(y)
        return out


class ResNet50(nn.Module):
    """Maps N x 3 x H x W, normalised, to N x 1000 logits.

    BatchNorm has eps 1e-5 and momentum 0.1, which is the reference's decay 0.9.
    """

    def __init__(self, variant: str = "v1.5") -> None:
        super().__init__()
        self.conv1 = _convolution(3, 64, 3) if variant == "epcc" else _convolution(3, 64, 7, 2)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        inputs = 64
        for number, (blocks, channels, stride) in enumerate(STAGES, 1):
            stage: List[nn.Module] = []
            for block in range(blocks):
                stage.append(Bottleneck(inputs, channels, stride if block == 0 else 1))
                inputs = EXPANSION * channels
            self.add_module(f"layer{number}", nn.Sequential(*stage))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, CLASSES)
        self._initialise()

    def _initialise(self) -> None:
        """Initialise as the reference: Keras' he_normal for convolutions; small normal, no bias for the classifier."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                he_normal_(module.weight)
        nn.init.normal_(self.fc.weight, std=0.01)
        nn.init.zeros_(self.fc.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = pooled(self.relu(self.bn1(self.conv1(x))))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        logits: torch.Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return logits


def pooled(x: torch.Tensor) -> torch.Tensor:
    """Max-pool 3x3 with stride 2 like TensorFlow's padding "same": windows of an even side begin at its first pixel."""
    return nn.functional.max_pool2d(x, 3, stride=2, padding=x.shape[-1] % 2, ceil_mode=True)


def he_normal_(weight: torch.Tensor) -> None:
    """Fill with Keras' he_normal: a normal of deviation sqrt(2 / fan-in), cut off at two deviations."""
    fan_in = weight[0].numel()
    deviation = math.sqrt(2 / fan_in) / TRUNCATED_DEVIATION
    nn.init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation)


def build(variant: str, shape: Shape) -> ResNet50:
    """Return the net with new weights; it takes pictures of any shape."""
    return ResNet50(variant)


# --- FLOP ------------------------------------------------------------------------------------------------------------


def _out(side: int, kernel: int, stride: int) -> int:
    return (side + 2 * (kernel // 2) - kernel) // stride + 1


def _products(variant: str, image_size: int) -> Iterator[Tuple[int, int, int, int]]:
    """Yield inputs, outputs, kernel and side of the result of every convolution, and last of the classifier."""
    kernel, stride = (3, 1) if variant == "epcc" else (7, 2)
    side = _out(image_size, kernel, stride)
    yield 3, 64, kernel, side
    side = _out(side, 3, 2)  # the pooling
    inputs = 64
    for blocks, channels, stage_stride in STAGES:
        for block in range(blocks):
            stride = stage_stride if block == 0 else 1
            outputs = EXPANSION * channels
            after = _out(side, 3, stride)
            yield inputs, channels, 1, side
            yield channels, channels, 3, after
            yield channels, outputs, 1, after
            if inputs != outputs:
                yield inputs, outputs, 1, after
            side = after
            inputs = outputs
    yield inputs, CLASSES, 1, 1


def flop_per_sample(variant: str = "v1.5", shape: Shape = (224, 224)) -> Tuple[float, float]:
    """Return the FLOP of one sample, forward and forward + backward: two per multiply-add.

    Backward is twice forward, without the gradient of the image, which is not computed. Only convolutions and the
    classifier are counted, as everywhere; normalisation, activations and pooling are 2 %.
    """
    flop = [
        2.0 * inputs * outputs * kernel**2 * side**2 for inputs, outputs, kernel, side in _products(variant, shape[0])
    ]
    return sum(flop), 3 * sum(flop) - flop[0]


# --- training --------------------------------------------------------------------------------------------------------

MEAN = (123.68, 116.78, 103.94)  # of ImageNet's red, green and blue, 0 … 255, as the reference has it


class Prepare:
    """Turns pixels as they were read, N x H x W x 3 uint8, into N x 3 x H x W of `dtype`, minus ImageNet's mean.

    It runs on the device where the pixels are. The permuted view of pixels that lie channels last *is* torch's
    channels_last format and costs nothing; the plain format is written out. The mean is subtracted in fp32, as in the
    reference, which does not divide by the deviation.
    """

    def __init__(self, data: Any, device: Any, dtype: torch.dtype, channels_last: bool) -> None:
        self.mean = torch.tensor(MEAN, device=device).view(1, 3, 1, 1)
        self.format = CHANNELS_LAST if channels_last else torch.contiguous_format
        self.dtype = dtype

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        x = pixels.permute(0, 3, 1, 2).to(torch.float32, memory_format=self.format)
        # A whole row of the means: where channels lie last, a processor's inner loop would be three numbers long.
        means = self.mean.expand(-1, -1, -1, x.shape[3]).contiguous(memory_format=self.format)
        return x.sub_(means).to(self.dtype)


def criterion(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the softmax cross-entropy, mean over the batch; label smoothing is 0, the reference's default."""
    return nn.functional.cross_entropy(logits.float(), labels)


# The reference's defaults (resnet-tf2: common.py, lars_util.py, resnet_model.py).
BASE_LEARNING_RATE = 0.1  # at a global batch size of 256
LEARNING_RATE_UNIT = 0.001  # MLPerf's rules: the rate is a multiple of it
END_LEARNING_RATE = 1e-4
WARMUP_EPOCHS = 5
DECAY_POWER = 2
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4  # times the sum of the squares, not half of it, is added to the loss


def make_optimizer(model: nn.Module) -> torch.optim.SGD:
    """Return SGD with momentum; all parameters but BatchNorm's decay, by a gradient of 2 x WEIGHT_DECAY x the value."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    of_norms = [parameter for norm in norms for parameter in norm.parameters()]
    identities = {id(parameter) for parameter in of_norms}
    others = [parameter for parameter in model.parameters() if id(parameter) not in identities]
    groups = [{"params": others, "weight_decay": 2 * WEIGHT_DECAY}, {"params": of_norms, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=BASE_LEARNING_RATE, momentum=MOMENTUM)


@dataclass(frozen=True)
class Schedule:
    """The learning rate of each optimiser step, as in the reference's PolynomialDecayWithWarmup.

    It rises linearly from 0, then falls with power 2 to 1e-4, which it would reach one step after the last. The
    reference sets the peak by an option; here it is proportional to the batch, as in the reference's other schedules.
    The reference warms up for five epochs; a run of less than fifty warms up for a tenth of its steps instead, because
    it would otherwise end before it learns.
    """

    steps: int
    steps_per_epoch: int
    global_batch: int

    @property
    def peak(self) -> float:
        units = round(BASE_LEARNING_RATE * self.global_batch / 256 / LEARNING_RATE_UNIT)
        return max(1, units) * LEARNING_RATE_UNIT

    @property
    def warmup_steps(self) -> int:
        return min(WARMUP_EPOCHS * self.steps_per_epoch, self.steps // 10)

    @property
    def decay_steps(self) -> int:
        return self.steps - self.warmup_steps + 1

    def rate(self, step: int) -> float:
        """Return the learning rate of optimiser step `step`, counted from 0."""
        if step < self.warmup_steps:
            return self.peak * step / self.warmup_steps
        left = 1 - (step - self.warmup_steps) / self.decay_steps
        return (self.peak - END_LEARNING_RATE) * left**DECAY_POWER + END_LEARNING_RATE

    def mlperf(self) -> Dict[str, object]:
        """Return it under MLPerf Training's names (ruleset 4.0, closed_resnet_sgd)."""
        return {
            "opt_name": "sgd",
            "sgd_opt_base_learning_rate": self.peak,
            "sgd_opt_end_learning_rate": END_LEARNING_RATE,
            "sgd_opt_learning_rate_decay_poly_power": DECAY_POWER,
            "sgd_opt_learning_rate_decay_steps": self.decay_steps,
            "sgd_opt_weight_decay": WEIGHT_DECAY,
            "sgd_opt_momentum": MOMENTUM,
            "opt_learning_rate_warmup_epochs": self.warmup_steps / self.steps_per_epoch,
        }
