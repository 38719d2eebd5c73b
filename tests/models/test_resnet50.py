"""Is it the ResNet-50 that everybody means? Parameters, names, shapes, FLOPs, gradients and learning rates."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from models import resnet50


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
    net = resnet50.build(variant, (224, 224))
    assert {name: tuple(value.shape) for name, value in net.state_dict().items()} == published(stem)
    assert len(published(stem)) == 320
    assert sum(p.numel() for p in net.parameters()) == parameters


def test_the_stride_is_in_the_3x3(net: resnet50.ResNet50) -> None:
    first = net.layer2[0]
    assert (first.conv1.stride, first.conv2.stride, first.downsample[0].stride) == ((1, 1), (2, 2), (2, 2))


def test_initialisation(net: resnet50.ResNet50) -> None:
    """he_normal by fan-out: the deviation of a kernel's weights is sqrt(2 / (outputs x kernel area))."""
    for weight in (net.conv1.weight, net.layer3[1].conv2.weight):
        fan_out = weight.shape[0] * weight.shape[2] * weight.shape[3]
        assert weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.03)
    assert net.fc.weight.std().item() == pytest.approx(0.01, rel=0.03)
    norms = [module for module in net.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    assert len(norms) == 53
    assert {(norm.eps, norm.momentum) for norm in norms} == {(1e-5, 0.1)}
    assert all(bool((norm.weight == 1).all()) for norm in norms)


@pytest.mark.parametrize(("variant", "forward", "training"), [("v1.5", 8.18e9, 24.30e9), ("epcc", 31.93e9, 95.6e9)])
def test_flop_of_a_sample_at_224(variant: str, forward: float, training: float) -> None:
    assert resnet50.flop_per_sample(variant, (224, 224)) == pytest.approx((forward, training), rel=1e-3)


@pytest.mark.parametrize(("variant", "side"), [("v1.5", 64), ("v1.5", 43), ("epcc", 32)])
def test_flop_as_torch_counts_them(variant: str, side: int) -> None:
    """torch's counter is right for convolutions that are not grouped."""
    net, pixels = resnet50.build(variant, (side, side)), torch.zeros(2, 3, side, side)
    with FlopCounterMode(display=False) as counter:
        logits = net(pixels)
        forward = counter.get_total_flops()
        logits.sum().backward()
    counted = (forward / 2, counter.get_total_flops() / 2)
    assert resnet50.flop_per_sample(variant, (side, side)) == pytest.approx(counted, rel=1e-12)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pixels_are_normalised_in_the_format_and_dtype_asked_for(channels_last: bool, dtype: torch.dtype) -> None:
    pixels = torch.randint(0, 256, (2, 8, 8, 3), dtype=torch.uint8)
    x = resnet50.Prepare(None, torch.device("cpu"), dtype, channels_last)(pixels)
    expected = (pixels.permute(0, 3, 1, 2).double() - torch.tensor(resnet50.MEAN).view(1, 3, 1, 1)) / torch.tensor(
        resnet50.STD
    ).view(1, 3, 1, 1)
    assert x.dtype is dtype
    assert x.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    assert torch.allclose(x.double(), expected, atol=1e-5 if dtype is torch.float32 else 3e-2)


def test_weight_decay_spares_batch_norm_and_biases(net: resnet50.ResNet50) -> None:
    decayed, spared = resnet50.make_optimizer(net).param_groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (1e-4, 0.0)
    assert {p.ndim for p in decayed["params"]} == {2, 4}
    assert len(decayed["params"]) + len(spared["params"]) == len(list(net.parameters()))
    assert {group["momentum"] for group in (decayed, spared)} == {0.9}


def test_learning_rate_of_a_long_run() -> None:
    """The reference's: five epochs up in a line, then down with power 2 to 1e-4; linear in the global batch size."""
    schedule = resnet50.Schedule(steps=4000, steps_per_epoch=100, global_batch=1024)
    assert schedule.warmup_steps == 400 == schedule.mlperf()["opt_learning_rate_warmup_epochs"] * 100  # type: ignore[operator]
    assert schedule.rate(99) == pytest.approx(0.4 * 100 / 400)
    assert schedule.rate(400) == pytest.approx(0.4)
    assert schedule.rate(400 + 1800) == pytest.approx((0.4 - 1e-4) / 4 + 1e-4)
    assert schedule.rate(4000) == pytest.approx(1e-4)
    assert resnet50.Schedule(steps=90000, steps_per_epoch=1000, global_batch=256).warmup_steps == 5000


def test_learning_rate_of_a_short_run_is_never_zero() -> None:
    rates = [resnet50.Schedule(steps=5, steps_per_epoch=100, global_batch=32).rate(step) for step in range(5)]
    assert rates == sorted(rates, reverse=True)
    assert min(rates) > 1e-4
