"""Is it the reference's CosmoFlow? Parameters, meaning of weights, FLOPs, layout, loss and learning rates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from models.benchmarks import cosmoflow
from models.errors import ImpossibleRequest

SMOKE = (32, 32, 32)
CPU = torch.device("cpu")


@pytest.fixture
def net() -> cosmoflow.CosmoFlow:
    torch.manual_seed(0)
    return cosmoflow.build("mlperf", SMOKE)


def sample(*, batch: int = 2, shape: tuple[int, ...] = SMOKE) -> torch.Tensor:
    counts = torch.poisson(torch.full((batch, *shape, 4), 1.5), generator=torch.Generator().manual_seed(1))
    return counts.to(torch.int16)


def prepared(batch: int = 2) -> torch.Tensor:
    return cosmoflow.Prepare(None, CPU, torch.float32, False)(sample(batch=batch))


# --- the net ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "parameters"),
    [((128, 128, 128), 8_907_556), (SMOKE, 8_907_556 - 63 * 512 * 128), ((64, 32, 96), 8_907_556 - 58 * 512 * 128)],
)
def test_number_of_parameters(shape: tuple[int, ...], parameters: int) -> None:
    """Of the full layers, the first depends on the shape: 64 voxels are left of 128 cubed, 1 of 32 cubed."""
    with torch.device("meta"):
        assert sum(p.numel() for p in cosmoflow.build("mlperf", shape).parameters()) == parameters


@pytest.mark.parametrize("shape", [(48, 32, 32), (16, 16, 16), (0, 32, 32), (64, 64), (32, 32, 32, 32)])
@pytest.mark.parametrize(
    "ask", [cosmoflow.build, lambda variant, shape: cosmoflow.sample_bytes("fp32", variant, shape)]
)
def test_other_shapes_are_refused(shape: tuple[int, ...], ask: Any) -> None:
    with pytest.raises(ImpossibleRequest, match=f"cannot take {'x'.join(map(str, shape))}: .* use --shape 128x128x128"):
        ask("mlperf", shape)


def test_initialisation(net: cosmoflow.CosmoFlow) -> None:
    """Keras': uniform between +-sqrt(6 / (fan in + fan out)), biases zero."""
    for module in [*net.convolutions, *net.hidden, net.head]:
        outputs, inputs = module.weight.shape[:2]
        bound = (6 / ((inputs + outputs) * module.weight[0, 0].numel())) ** 0.5
        assert 0.9 * bound < module.weight.abs().max().item() <= bound
        assert module.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1)
        assert not module.bias.any()


@pytest.mark.slow
def test_it_computes_what_the_reference_does() -> None:
    """Written down once more from the reference, layer by layer, in its order and in fp64."""
    shape = (64, 32, 32)  # two voxels are left, so that the order of the flattened numbers matters
    net = cosmoflow.build("mlperf", shape).double().eval()
    for bias in (module.bias for module in [*net.convolutions, *net.hidden, net.head]):
        nn.init.uniform_(bias, -0.1, 0.1)
    x = torch.log(sample(shape=shape).double() + 1).permute(0, 4, 1, 2, 3)
    expected = x
    for convolution in net.convolutions:
        expected = functional.conv3d(expected, convolution.weight, convolution.bias, padding=1)
        expected = torch.where(expected > 0, expected, 0.3 * expected)
        n, c, d, h, w = expected.shape
        expected = expected.reshape(n, c, d // 2, 2, h // 2, 2, w // 2, 2).amax((3, 5, 7))
    expected = torch.from_numpy(np.moveaxis(expected.detach().numpy(), 1, -1).reshape(2, -1))  # Keras' Flatten
    for layer in [*net.hidden, net.head]:
        expected = expected @ layer.weight.T + layer.bias
        if layer is not net.head:
            expected = torch.where(expected > 0, expected, 0.3 * expected)
    assert torch.allclose(net(x).double(), 1.2 * torch.tanh(expected), atol=1e-6)


@pytest.mark.slow
def test_dropout_is_for_training_only_and_drawn_from_torch(net: cosmoflow.CosmoFlow) -> None:
    def answer(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return net(prepared())

    assert torch.equal(answer(1), answer(1))
    assert not torch.equal(answer(1), answer(2))
    net.eval()
    assert torch.equal(answer(1), answer(2))


@pytest.mark.slow
def test_half_of_the_hidden_numbers_are_dropped(net: cosmoflow.CosmoFlow) -> None:
    """The last layer sees 64 numbers, half of them 0."""
    seen: list[torch.Tensor] = []
    net.head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    net(prepared(batch=4))
    dropped = (seen[0] == 0).float().mean().item()
    assert dropped == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(("shape", "channels_last"), [((64, 32, 32), False), ((32, 64, 32), True)])
@pytest.mark.slow
def test_gradients_in_bf16_are_those_in_fp32(shape: tuple[int, ...], channels_last: bool) -> None:
    """Of each convolution, for the very numbers that it was given: cubes that are two voxels deep are the hard ones."""
    torch.manual_seed(0)
    net = cosmoflow.build("mlperf", shape)
    inputs: list[torch.Tensor] = []
    gradients: list[torch.Tensor] = []  # of outputs, from the last to the first

    def look(module: Any, given: Any, output: torch.Tensor) -> None:
        inputs.append(given[0].detach().float())
        output.register_hook(lambda gradient: gradients.append(gradient.float()))

    for module in net.convolutions:
        module.register_forward_hook(look)
    counts = sample(shape=shape)
    if channels_last:
        net = net.to(memory_format=cosmoflow.CHANNELS_LAST)
    with torch.autocast("cpu", torch.bfloat16):
        answers = net(cosmoflow.Prepare(None, CPU, torch.bfloat16, channels_last)(counts))
    cosmoflow.criterion(answers, torch.zeros(2, 4)).backward()
    for module, given, gradient in zip(net.convolutions, inputs, reversed(gradients), strict=True):
        expected = nn.grad.conv3d_weight(given, list(module.weight.shape), gradient, padding=1)
        assert (module.weight.grad - expected).norm() < 0.01 * expected.norm()  # rounded to bf16: 0.002


# --- what it costs ---------------------------------------------------------------------------------------------------


def test_flop_of_a_sample_at_128() -> None:
    assert cosmoflow.flop_per_sample("mlperf", (128, 128, 128)) == pytest.approx((68.86e9, 192.09e9), rel=1e-4)


@pytest.mark.parametrize("shape", [SMOKE, (32, 64, 32)])
@pytest.mark.slow
def test_flop_as_torch_counts_them(shape: tuple[int, ...]) -> None:
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        answers = cosmoflow.build("mlperf", shape)(torch.zeros(2, 4, *shape))
        forward = counter.get_total_flops()
        answers.sum().backward()
    counted = (forward / 2, counter.get_total_flops() / 2)
    assert cosmoflow.flop_per_sample("mlperf", shape) == pytest.approx(counted, rel=1e-12)


def test_memory_of_a_sample_goes_with_its_volume() -> None:
    def mib(dtype: str, side: int) -> float:
        return cosmoflow.sample_bytes(dtype, "mlperf", (side, side, side)) / 2**20

    assert (mib("fp32", 128), mib("bf16", 128), mib("fp16", 64)) == (672, 384, 48)
    assert mib("tf32", 32) == 672 / 64


# --- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_counts_become_logarithms_in_the_format_and_dtype_asked_for(channels_last: bool, dtype: torch.dtype) -> None:
    counts = sample()
    counts[0, 0, 0, 0] = torch.tensor([0, 1, 300, 32767])
    before = counts.clone()
    x = cosmoflow.Prepare(None, CPU, dtype, channels_last)(counts)
    assert x.dtype is dtype
    assert x.is_contiguous(memory_format=torch.channels_last_3d if channels_last else torch.contiguous_format)
    expected = torch.log(counts.double() + 1).permute(0, 4, 1, 2, 3)
    assert torch.allclose(x.double(), expected, rtol=1e-6 if dtype is torch.float32 else 4e-3)
    assert torch.equal(counts, before)


def test_loss_by_hand() -> None:
    answers, targets = torch.tensor([[0.5, -1.0, 0.0, 0.25]]), torch.tensor([[0.0, 1.0, 0.0, 0.75]])
    assert cosmoflow.criterion(answers, targets).item() == pytest.approx((0.25 + 4 + 0 + 0.25) / 4)


def test_optimizer(net: cosmoflow.CosmoFlow) -> None:
    (group,) = cosmoflow.make_optimizer(net).param_groups
    assert (group["momentum"], group["weight_decay"], group["lr"]) == (0.9, 0.0, 0.001)
    assert len(group["params"]) == 2 * 8


@pytest.mark.parametrize(
    ("epoch", "rate"),
    [
        (0, 0.001),  # the base
        (1, 0.001 + 0.015 / 4),
        (3, 0.001 + 0.045 / 4),
        (4, 0.016),  # the peak, 0.001 x 1024 / 64
        (32, 0.016),
        (33, 0.004),
        (64, 0.004),
        (65, 0.002),
        (127, 0.002),
    ],
)
def test_learning_rate_of_a_long_run_is_the_references(epoch: int, rate: float) -> None:
    """Constant in an epoch, as Keras asks once in each."""
    schedule = cosmoflow.Schedule(steps=128 * 10, steps_per_epoch=10, global_batch=1024)
    assert [schedule.rate(10 * epoch + step) for step in (0, 9)] == pytest.approx([rate, rate])


def test_learning_rate_of_a_short_run() -> None:
    """A tenth of its steps up to the peak; a batch below 64 goes down to it."""
    up = cosmoflow.Schedule(steps=100, steps_per_epoch=1000, global_batch=640)
    assert up.warmup_steps == 10
    assert [up.rate(step) for step in (0, 5, 10, 99)] == pytest.approx([0.001, 0.0055, 0.01, 0.01])
    down = cosmoflow.Schedule(steps=100, steps_per_epoch=26, global_batch=32)
    assert [down.rate(step) for step in (0, 5, 10)] == pytest.approx([0.001, 0.00075, 0.0005])
    assert cosmoflow.Schedule(steps=5, steps_per_epoch=1000, global_batch=64).rate(0) == 0.001
    assert cosmoflow.Schedule(steps=104, steps_per_epoch=26, global_batch=32).warmup_steps == 104


def test_mlperf_names_with_the_values_that_the_reference_logs() -> None:
    assert cosmoflow.Schedule(steps=1280, steps_per_epoch=10, global_batch=1024).mlperf() == {
        "opt_name": "sgd",
        "opt_base_learning_rate": 0.016,
        "opt_learning_rate_warmup_epochs": 4.0,
        "opt_learning_rate_warmup_factor": 16.0,
        "opt_learning_rate_decay_boundary_epochs": [32, 64],
        "opt_learning_rate_decay_factor": 0.25,
        "opt_weight_decay": 0.0,
        "dropout": 0.5,
    }
