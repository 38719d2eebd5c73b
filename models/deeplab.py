"""DeepLabv3+ on the modified aligned Xception, output stride 16, with a deconvolution decoder: the net of DeepCAM.

Chen et al. 2018; the decoder after Kurth et al. 2018. Widths, order and initialisation follow the net of MLPerf HPC's
reference (mlcommons/hpc, deepcam; MIT licence, (c) 2018 Pyjcsx, (c) 2020 NVIDIA): given its weights, its numbers.
"""

from __future__ import annotations

import math
from typing import List, Optional, Tuple

import torch
from torch import nn

from models.settings import Shape

VARIABLES = 16  # channels of a sample
CLASSES = 3  # background, tropical cyclone, atmospheric river
OUTPUT_STRIDE = 16

# A block of separable 3x3 convolutions: channels before and after each; stride of one more at the end, or None; whether
# a ReLU follows.
BlockPlan = Tuple[Tuple[int, ...], Optional[int], bool]
ENTRY: Tuple[BlockPlan, ...] = (((64, 128, 128), 2, False), ((128, 256, 256), 2, True), ((256, 728, 728), 2, True))
MIDDLE: Tuple[BlockPlan, ...] = (((728, 728, 728, 728), None, True),) * 16
EXIT: Tuple[BlockPlan, ...] = (((728, 728, 1024), 1, False),)
STEM = (32, 64)
LAST = (1024, 1536, 1536, 2048)  # separable 3x3 convolutions after the blocks, dilation 2
RATES = (1, 6, 12, 18)  # dilations of the spatial pyramid
WIDTH = 256  # channels of each branch of the pyramid, and of the decoder
DETAILS = 48  # channels that the decoder gets from the first block

# --- the net ---------------------------------------------------------------------------------------------------------


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1) -> nn.Conv2d:
    padding = dilation * (kernel // 2)
    return nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, bias=False)


def _separable(inputs: int, outputs: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    depthwise = nn.Conv2d(inputs, inputs, 3, stride, dilation, dilation, groups=inputs, bias=False)
    return nn.Sequential(depthwise, _convolution(inputs, outputs, 1))


def _doubling(inputs: int, outputs: int) -> nn.ConvTranspose2d:
    """A deconvolution to twice the height and width."""
    return nn.ConvTranspose2d(inputs, outputs, 3, stride=2, padding=1, output_padding=1, bias=False)


def _normed(convolution: nn.Module, channels: int) -> nn.Sequential:
    return nn.Sequential(convolution, nn.BatchNorm2d(channels), nn.ReLU(inplace=True))


class SeparableBlock(nn.Module):
    """Separable convolutions with BatchNorm, and ReLU between them; the sum with the input.

    Where shapes differ, the input goes through a 1x1 convolution.
    """

    def __init__(self, channels: Tuple[int, ...], stride: Optional[int], relu: bool) -> None:
        super().__init__()
        layers: List[nn.Module] = []
        for inputs, outputs in zip(channels, channels[1:]):
            layers += [_separable(inputs, outputs), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
        layers.pop()
        self.skip: Optional[nn.Module] = None
        if stride is not None:
            layers.append(_separable(channels[-1], channels[-1], stride))
            skip = _convolution(channels[0], channels[-1], 1, stride)
            self.skip = nn.Sequential(skip, nn.BatchNorm2d(channels[-1]))
        self.layers = nn.Sequential(*layers)
        self.relu = nn.ReLU(inplace=True) if relu else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        y += x if self.skip is None else self.skip(x)
        out: torch.Tensor = self.relu(y)
        return out


class PooledBranch(nn.Module):
    """The pyramid's branch that sees the mean of the whole sample.

    It is scaled and not normalised, because a batch may be one sample.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.convolution = _convolution(inputs, outputs, 1)
        self.scale = nn.Parameter(torch.ones(outputs, 1, 1))
        self.shift = nn.Parameter(torch.zeros(outputs, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.convolution(nn.functional.adaptive_avg_pool2d(x, 1))
        y = torch.relu(self.scale * y + self.shift).to(y.dtype)  # autocast leaves the sum in fp32
        # Written out in the format of the others: a view of strides 0 would make the concatenation fall back to NCHW.
        layout = torch.channels_last if x.is_contiguous(memory_format=torch.channels_last) else torch.contiguous_format
        return y.expand(-1, -1, *x.shape[2:]).contiguous(memory_format=layout)


class DeepLab(nn.Module):
    """Maps N x 16 x H x W, normalised, to N x 3 x H x W logits. BatchNorm: each rank's own, eps 1e-5, momentum 0.1."""

    def __init__(self) -> None:
        super().__init__()
        first, second = STEM
        self.entry = nn.Sequential(
            _normed(_convolution(VARIABLES, first, 3, 2), first),
            _normed(_convolution(first, second, 3), second),
            SeparableBlock(*ENTRY[0]),
            nn.ReLU(inplace=True),  # the decoder gets its details after it, because the reference's works in place
        )
        self.encoder = nn.Sequential(
            *(SeparableBlock(*plan) for plan in (*ENTRY[1:], *MIDDLE, *EXIT)),
            *(_normed(_separable(inputs, outputs, dilation=2), outputs) for inputs, outputs in zip(LAST, LAST[1:])),
        )
        self.pyramid = nn.ModuleList(
            _normed(_convolution(LAST[-1], WIDTH, 1 if rate == 1 else 3, dilation=rate), WIDTH) for rate in RATES
        )
        self.pooled = PooledBranch(LAST[-1], WIDTH)
        self.merge = nn.Sequential(
            _normed(_convolution((len(RATES) + 1) * WIDTH, WIDTH, 1), WIDTH),
            _normed(_doubling(WIDTH, WIDTH), WIDTH),
            _normed(_doubling(WIDTH, WIDTH), WIDTH),
        )
        self.details = _normed(_convolution(ENTRY[0][0][-1], DETAILS, 1), DETAILS)
        self.decoder = nn.Sequential(
            _normed(_convolution(WIDTH + DETAILS, WIDTH, 3), WIDTH),
            _normed(_convolution(WIDTH, WIDTH, 3), WIDTH),
            nn.Conv2d(WIDTH, WIDTH, 1),
            _normed(_doubling(WIDTH, WIDTH), WIDTH),
            _doubling(WIDTH, CLASSES),
        )
        self._initialise()

    def _initialise(self) -> None:
        """Initialise with he_normal (fan-in) up to the pyramid; leave the rest to PyTorch, as the reference does."""
        for part in (self.entry, self.encoder, self.pyramid):
            for module in part.modules():
                if isinstance(module, nn.Conv2d):
                    nn.init.kaiming_normal_(module.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        details = self.entry(x)
        x = self.encoder(details)
        x = self.merge(torch.cat([*(branch(x) for branch in self.pyramid), self.pooled(x)], dim=1))
        logits: torch.Tensor = self.decoder(torch.cat([x, self.details(details)], dim=1))
        return logits


# --- FLOP ------------------------------------------------------------------------------------------------------------


def _separable_cost(inputs: int, outputs: int, area: int) -> int:
    return (9 + outputs) * inputs * area


def _block_cost(plan: BlockPlan, area: int) -> Tuple[int, int]:
    """Return the multiply-adds of a block on `area` pixels, and the pixels of its result."""
    channels, stride, _ = plan
    cost = sum(_separable_cost(inputs, outputs, area) for inputs, outputs in zip(channels, channels[1:]))
    if stride is not None:
        area //= stride**2
        cost += _separable_cost(channels[-1], channels[-1], area) + channels[0] * channels[-1] * area
    return cost, area


def _encoder_cost(area: int) -> Tuple[int, int]:
    """Return the multiply-adds from the second convolution to the last before the pyramid, and the pixels left."""
    total = 9 * STEM[0] * STEM[1] * area
    for plan in (*ENTRY, *MIDDLE, *EXIT):
        cost, area = _block_cost(plan, area)
        total += cost
    return total + sum(_separable_cost(inputs, outputs, area) for inputs, outputs in zip(LAST, LAST[1:])), area


def _decoder_cost(area: int) -> int:
    """Return the multiply-adds from the pyramid to the logits. A deconvolution needs nine for each input pixel."""
    pyramid = LAST[-1] * WIDTH * (area * sum(1 if rate == 1 else 9 for rate in RATES) + 1)
    merge = ((len(RATES) + 1) * WIDTH**2 + (1 + 4) * 9 * WIDTH**2) * area
    area *= 4**2
    fine = ENTRY[0][0][-1] * DETAILS + 9 * (WIDTH + DETAILS) * WIDTH + (9 + 1) * WIDTH**2
    return pyramid + merge + (fine + 9 * WIDTH**2 + 4 * 9 * WIDTH * CLASSES) * area


def flop(shape: Shape) -> Tuple[float, float]:
    """Return the FLOP of one sample of H x W, forward and forward + backward: two per multiply-add.

    Backward is twice forward, without the gradient of the sample, which is not computed. The same holds for the
    convolutions of single channels, whose backward pass torch's counter takes for one of all channels. Only
    convolutions and deconvolutions are counted.
    """
    area = math.prod(shape) // 2**2
    first = 9 * VARIABLES * STEM[0] * area
    encoder, left = _encoder_cost(area)
    forward = 2.0 * (first + encoder + _decoder_cost(left))
    return forward, 3 * forward - 2.0 * first
