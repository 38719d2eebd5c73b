"""Is it the reference's ResNet-50? Parameters, names, shapes, first weights, FLOPs, optimiser and learning rates."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from models.benchmarks import resnet50


def published(stem: int) -> dict[str, tuple[int, ...]]:
    """torchvision's state_dict, names and shapes, from table 1 of He et al. and torchvision's way of naming."""
    shapes: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, stem, stem)}

    def batch_norm(name: str, channels: int) -> None:
        for part in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{name}.{part}"] = (channels,)
        shapes[f"{name}.num_batches_tracked"] = ()

    batch_norm("bn1", 64)
    inputs = 64
    for layer, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)], 1):
        for block in range(blocks):
            name = f"layer{layer}.{block}"
            for part, shape in {1: (width, inputs, 1, 1), 2: (width, width, 3, 3), 3: (4 * width, width, 1, 1)}.items():
                shapes[f"{name}.conv{part}.weight"] = shape
                batch_norm(f"{name}.bn{part}", shape[0])
            if block == 0:
                shapes[f"{name}.downsample.0.weight"] = (4 * width, inputs, 1, 1)
                batch_norm(f"{name}.downsample.1", 4 * width)
            inputs = 4 * width
    return {**shapes, "fc.weight": (1000, 2048), "fc.bias": (1000,)}


@pytest.fixture(scope="module")
def net() -> resnet50.ResNet50:
    torch.manual_seed(0)
    return resnet50.build("v1.5", (224, 224))


@pytest.mark.parametrize(("variant", "stem", "parameters"), [("v1.5", 7, 25_557_032), ("epcc", 3, 25_549_352)])
def test_names_shapes_and_number_of_parameters(variant: str, stem: int, parameters: int) -> None:
    with torch.device("meta"):
        net = resnet50.build(variant, (224, 224))
    assert {name: tuple(value.shape) for name, value in net.state_dict().items()} == published(stem)
    assert len(published(stem)) == 320
    assert sum(p.numel() for p in net.parameters()) == parameters


def test_initialisation(net: resnet50.ResNet50) -> None:
    """Keras' he_normal: deviation sqrt(2 / (inputs x kernel area)), and no weight beyond two of the normal's own."""
    for weight in (net.conv1.weight, net.layer3[1].conv2.weight, net.layer4[0].downsample[0].weight):
        fan_in = weight[0].numel()
        assert weight.std().item() == pytest.approx((2 / fan_in) ** 0.5, rel=0.03)
        beyond = 2 * (2 / fan_in) ** 0.5 / 0.8796  # a normal that is cut off at 2 deviates by 0.8796
        assert 0.95 * beyond < weight.abs().max().item() <= beyond * (1 + 1e-6)
    assert net.fc.weight.std().item() == pytest.approx(0.01, rel=0.03)
    assert not net.fc.bias.any()
    norms = [module for module in net.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert len(norms) == 53
    assert {(norm.eps, norm.momentum) for norm in norms} == {(1e-5, 0.1)}
    assert all(bool((norm.weight == 1).all()) for norm in norms)


@pytest.mark.parametrize("side", [6, 7, 32, 33])
def test_pooling_begins_where_the_references_does(side: int) -> None:
    """TensorFlow's "same": a window for every second pixel; padded evenly, an odd one at the end."""
    x = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0)) - 2
    windows = (side + 1) // 2
    missing = 2 * (windows - 1) + 3 - side
    before, after = missing // 2, missing - missing // 2
    padded = torch.nn.functional.pad(x, (before, after, before, after), value=float("-inf"))
    expected = torch.stack([padded[:, :, :, 2 * k : 2 * k + 3].amax(3) for k in range(windows)], 3)
    expected = torch.stack([expected[:, :, 2 * k : 2 * k + 3].amax(2) for k in range(windows)], 2)
    assert torch.equal(resnet50.pooled(x), expected)


@pytest.mark.parametrize(("variant", "forward", "training"), [("v1.5", 8.18e9, 24.30e9), ("epcc", 31.93e9, 95.6e9)])
def test_flop_of_a_sample_at_224(variant: str, forward: float, training: float) -> None:
    assert resnet50.flop_per_sample(variant, (224, 224)) == pytest.approx((forward, training), rel=1e-3)


@pytest.mark.parametrize(
    ("variant", "side"),
    [pytest.param("v1.5", 64, marks=pytest.mark.slow), ("v1.5", 43), pytest.param("epcc", 32, marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_flop_as_torch_counts_them(variant: str, side: int) -> None:
    """torch's counter is right for convolutions that are not grouped."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        logits = resnet50.build(variant, (side, side))(torch.zeros(2, 3, side, side))
        forward = counter.get_total_flops()
        logits.sum().backward()
    counted = (forward / 2, counter.get_total_flops() / 2)
    assert resnet50.flop_per_sample(variant, (side, side)) == pytest.approx(counted, rel=1e-12)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pixels_are_normalised_in_the_format_and_dtype_asked_for(channels_last: bool, dtype: torch.dtype) -> None:
    pixels = torch.randint(0, 256, (2, 8, 8, 3), dtype=torch.uint8)
    x = resnet50.Prepare(None, torch.device("cpu"), dtype, channels_last)(pixels)
    expected = pixels.permute(0, 3, 1, 2).double() - torch.tensor([123.68, 116.78, 103.94]).view(1, 3, 1, 1)
    assert x.dtype is dtype
    assert x.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    assert torch.allclose(x.double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-4)  # fp32 before it is rounded


def test_weight_decay_spares_batch_norm_only(net: resnet50.ResNet50) -> None:
    decayed, spared = resnet50.make_optimizer(net).param_groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (2e-4, 0.0)
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    of_norms = {name for name in names.values() if ".bn" in f".{name}" or "downsample.1" in name}
    assert {names[id(parameter)] for parameter in spared["params"]} == of_norms
    assert {names[id(parameter)] for parameter in decayed["params"]} == set(names.values()) - of_norms
    assert len(of_norms) == 2 * 53
    assert {group["momentum"] for group in (decayed, spared)} == {0.9}


def test_steps_are_those_of_the_references_loss() -> None:
    """Three steps by hand: 1e-4 x sum(v^2) of all but BatchNorm's is added to the loss; no rate is in the velocity."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, bias=False), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(4, 5)
    ).double()
    x, y = torch.randn(6, 3, 3, 3).double(), torch.tensor([0, 1, 2, 3, 4, 0])
    hand = copy.deepcopy(net)
    velocity = [torch.zeros_like(parameter) for parameter in hand.parameters()]
    optimizer = resnet50.make_optimizer(net)
    for rate in (0.0, 0.5, 0.25):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()

        squares = hand[0].weight.square().sum() + hand[3].weight.square().sum() + hand[3].bias.square().sum()
        loss = torch.nn.functional.cross_entropy(hand(x), y) + 1e-4 * squares
        gradients = torch.autograd.grad(loss, list(hand.parameters()))
        with torch.no_grad():
            for parameter, gradient, speed in zip(hand.parameters(), gradients, velocity, strict=True):
                speed.mul_(0.9).add_(gradient)
                parameter.sub_(rate * speed)
    for actual, expected in zip(net.parameters(), hand.parameters(), strict=True):
        assert torch.allclose(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("global_batch", "peak"), [(256, 0.1), (1024, 0.4), (32, 0.012), (48, 0.019), (2, 0.001)])
def test_the_peak_goes_with_the_batch_in_thousandths(global_batch: int, peak: float) -> None:
    """Multiples of 0.001 are what MLPerf's rules allow."""
    assert resnet50.Schedule(steps=1, steps_per_epoch=1, global_batch=global_batch).peak == pytest.approx(peak)


def test_learning_rate_of_a_long_run() -> None:
    """The reference's: five epochs up in a line from 0, then down with power 2, to 1e-4 one step after the last."""
    schedule = resnet50.Schedule(steps=4000, steps_per_epoch=100, global_batch=1024)
    logged = schedule.mlperf()
    assert schedule.warmup_steps == 400 == logged["opt_learning_rate_warmup_epochs"] * 100  # type: ignore[operator]
    assert logged["sgd_opt_learning_rate_decay_steps"] == 3601
    assert logged["sgd_opt_weight_decay"] == 1e-4  # the reference's flag
    assert schedule.rate(0) == 0
    assert schedule.rate(100) == pytest.approx(0.4 * 100 / 400)
    assert schedule.rate(400) == pytest.approx(0.4)
    assert schedule.rate(400 + 1800) == pytest.approx((0.4 - 1e-4) * (1 - 1800 / 3601) ** 2 + 1e-4)
    assert schedule.rate(4001) == pytest.approx(1e-4)
    assert resnet50.Schedule(steps=90000, steps_per_epoch=1000, global_batch=256).warmup_steps == 5000


def test_learning_rate_of_a_run_too_short_to_warm_up() -> None:
    rates = [resnet50.Schedule(steps=5, steps_per_epoch=100, global_batch=32).rate(step) for step in range(5)]
    assert rates[0] == 0.012
    assert rates == sorted(rates, reverse=True)
    assert min(rates) > 1e-4
