"""The layout in memory and the dtype change what a step costs, and not its gradients: every parameter of each net.

`make test` asks all of it of CosmoFlow, and of the others what the configuration `tuned` asks for.

BatchNorm over the few samples of a test amplifies rounding: at new weights the gradients of two correct fp32 runs
differ by some per cent, those of bf16 by all of their length. So fp64 is compared in training, and the dtypes that are
trained in with BatchNorm at rest, as a scale and a shift. What is left is rounding, and the few ReLU and maxima that it
tips.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from models import benchmarks
from models.accelerators.cpu import Cpu
from models.dtypes import TORCH_DTYPES

pytestmark = pytest.mark.slow

at_night = pytest.mark.nightly(
    "models/benchmarks", "models/deeplab.py", "models/dtypes.py", "models/accelerators/cpu.py"
)
WHOLE = [name if name == "cosmoflow" else pytest.param(name, marks=at_night) for name in benchmarks.names()]
each = pytest.mark.parametrize("net", benchmarks.names(), indirect=True, scope="module")
cheapest = pytest.mark.parametrize("net", WHOLE, indirect=True, scope="module")

VARIANTS = {"gpt": "llama-38m"}
"""Where the first variant is too large for a test."""
CONVOLUTIONS = (torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Conv3d)
AMPLIFIED_FP64 = 1e-8  # of what the gradient measures: 10^8 roundings
TIPPED_FP32 = 0.1  # rounding itself: 1e-6
TIPPED_BF16 = 0.5  # a gradient that is wrong is off by all of its length


class Net:
    """One net at new weights with two samples, and the gradients of its parameters in any dtype and layout."""

    def __init__(self, name: str) -> None:
        self.module: Any = benchmarks.load(name)
        self.name = name
        self.extremes = SimpleNamespace(minimum=torch.zeros(16), maximum=torch.ones(16))  # which DeepCAM asks for

    def gradients(self, dtype: str, *, channels_last: bool, training: bool) -> Mapping[str, torch.Tensor]:
        shape, samples, targets = two_samples(self.name, training)
        torch.manual_seed(0)
        net = self.module.build(VARIANTS.get(self.name, next(iter(self.module.VARIANTS))), shape).train(training)
        kind = torch.float64 if dtype == "fp64" else TORCH_DTYPES[dtype]
        if channels_last:
            net = net.to(memory_format=self.module.CHANNELS_LAST)
        if dtype == "fp64":
            net = net.double()
        prepare = self.module.Prepare(self.extremes, torch.device("cpu"), kind, channels_last)
        torch.manual_seed(0)  # of the dropout
        with Cpu().autocast("fp32" if dtype == "fp64" else dtype):
            loss = self.module.criterion(net(prepare(samples)), targets)
        loss.backward()
        return {name: parameter.grad.double() for name, parameter in net.named_parameters()}


def two_samples(name: str, training: bool) -> tuple[tuple[int, ...], torch.Tensor, torch.Tensor]:
    """A shape, two samples as the data set hands them over, and their targets. In training they are larger, since
    BatchNorm over few pixels amplifies most."""
    generator = torch.Generator().manual_seed(1)
    if name == "resnet50":
        side = 64 if training else 32
        pixels = torch.randint(0, 256, (2, side, side, 3), dtype=torch.uint8, generator=generator)
        return (side, side), pixels, torch.tensor([7, 700])
    if name == "cosmoflow":
        counts = torch.poisson(torch.full((2, 32, 32, 32, 4), 1.5), generator=generator).to(torch.int16)
        return (32, 32, 32), counts, 2 * torch.rand(2, 4, generator=generator) - 1
    if name == "gpt":
        tokens = torch.randint(0, 50257, (2, 17), generator=generator)
        return (16,), tokens[:, :-1], tokens[:, 1:]
    shape = (32, 48) if training else (16, 32)
    fields = torch.rand(2, *shape, 16, generator=generator)
    return shape, fields, torch.randint(0, 3, (2, *shape), dtype=torch.uint8, generator=generator)


@pytest.fixture(scope="module")
def net(request: pytest.FixtureRequest) -> Net:
    return Net(request.param)


@pytest.fixture(scope="module")
def exact(net: Net) -> Mapping[str, torch.Tensor]:
    """The gradients with BatchNorm at rest, in fp64 and the plain layout."""
    return net.gradients("fp64", channels_last=False, training=False)


def assert_close(actual: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], tolerance: float) -> None:
    errors = {name: ((actual[name] - expected[name]).norm() / expected[name].norm()).item() for name in expected}
    assert {name: error for name, error in errors.items() if not error < tolerance} == {}


@cheapest
def test_in_fp64_channels_last_trains_as_the_plain_layout(net: Net) -> None:
    plain = net.gradients("fp64", channels_last=False, training=True)
    assert_close(net.gradients("fp64", channels_last=True, training=True), plain, AMPLIFIED_FP64)


@cheapest
@pytest.mark.parametrize(
    ("dtype", "channels_last", "tolerance"),
    [("fp32", False, TIPPED_FP32), ("fp32", True, TIPPED_FP32), ("bf16", False, TIPPED_BF16)],
)
def test_gradients_are_those_of_fp64_in_every_dtype_and_layout(
    net: Net, exact: Mapping[str, torch.Tensor], dtype: str, channels_last: bool, tolerance: float
) -> None:
    assert_close(net.gradients(dtype, channels_last=channels_last, training=False), exact, tolerance)


@each
def test_gradients_in_bf16_and_channels_last_are_those_of_fp64(net: Net, exact: Mapping[str, torch.Tensor]) -> None:
    assert_close(net.gradients("bf16", channels_last=True, training=False), exact, TIPPED_BF16)


needs_bf16 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="torch convolves bf16 in the plain layout here: no AVX-512"
)


@pytest.mark.parametrize(
    "net", ["cosmoflow", "deepcam", pytest.param("resnet50", marks=at_night)], indirect=True, scope="module"
)
@pytest.mark.parametrize("dtype", ["fp32", pytest.param("bf16", marks=needs_bf16)])
def test_no_convolution_copies_to_another_layout_or_dtype(net: Net, dtype: str) -> None:
    """Nor do the gradients of their outputs, but for DeepCAM's, some of which are parts of joined ones."""
    shape, samples, targets = two_samples(net.name, training=False)
    model = net.module.build(next(iter(net.module.VARIANTS)), shape).to(memory_format=net.module.CHANNELS_LAST)
    seen: list[torch.Tensor] = []
    gradients = net.name != "deepcam"

    def look(module: Any, inputs: Any, output: torch.Tensor) -> None:
        seen.extend([*inputs, output])
        if gradients:
            output.register_hook(seen.append)

    convolutions = [module for module in model.modules() if isinstance(module, CONVOLUTIONS)]
    for module in convolutions:
        module.register_forward_hook(look)
    prepare = net.module.Prepare(net.extremes, torch.device("cpu"), TORCH_DTYPES[dtype], True)
    with Cpu().autocast(dtype):
        loss = net.module.criterion(model(prepare(samples)), targets)
    loss.backward()
    assert loss.dtype is torch.float32
    assert len(seen) == (2 + gradients) * len(convolutions)
    assert {tensor.dtype for tensor in seen} == {TORCH_DTYPES[dtype]}
    assert all(tensor.is_contiguous(memory_format=net.module.CHANNELS_LAST) for tensor in seen)
