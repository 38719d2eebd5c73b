"""Is it the reference's DeepCAM? Parameters, shapes, layout, FLOPs, loss, IoU by hand and learning rates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from models import deeplab
from models.benchmarks import deepcam
from models.errors import ImpossibleRequest

SMOKE = (96, 144)
CPU = torch.device("cpu")
PS = 6  # surface pressure, some 100,000 Pa
DATA = SimpleNamespace(
    minimum=torch.tensor([0.0] * PS + [50_000.0] + [-40.0] * 9),
    maximum=torch.tensor([1.0] * PS + [105_000.0] + [60.0] * 9),
)


@pytest.fixture(scope="module")
def built() -> deeplab.DeepLab:
    torch.manual_seed(0)
    return deepcam.build("mlperf", SMOKE)


@pytest.fixture
def net(built: deeplab.DeepLab) -> deeplab.DeepLab:
    """As built, whatever another test did to its mode; they leave its weights alone."""
    return built.train()


def normalised(batch: int, shape: tuple[int, int]) -> torch.Tensor:
    return torch.rand(batch, 16, *shape, generator=torch.Generator().manual_seed(1))


def convolutions(net: nn.Module) -> list[nn.Module]:
    return [module for module in net.modules() if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d))]


# --- the net ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_number_of_parameters_and_layers(built: deeplab.DeepLab) -> None:
    assert sum(p.numel() for p in built.parameters()) == 56_454_720
    depthwise = [module for module in convolutions(built) if module.groups > 1]
    assert len(depthwise) == 3 * 3 + 16 * 3 + 3 + 3  # entry, middle, exit block, after it
    assert sum(isinstance(module, nn.ConvTranspose2d) for module in convolutions(built)) == 4
    norms = [module for module in built.modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) == 76
    assert {(norm.eps, norm.momentum) for norm in norms} == {(1e-5, 0.1)}
    assert [module for module in convolutions(built) if module.bias is not None] == [built.decoder[2]]


def test_initialisation(built: deeplab.DeepLab) -> None:
    """The reference really calls its he_normal (by fan-in) for encoder and pyramid only; the rest is PyTorch's."""
    he_normal = {id(module) for part in (built.entry, built.encoder, built.pyramid) for module in convolutions(part)}
    for module in convolutions(built):
        fan_in = module.weight[0].numel()
        spread = module.weight.std().item() * fan_in**0.5
        assert spread == pytest.approx(2**0.5 if id(module) in he_normal else 1 / 3**0.5, rel=0.07)
        largest = module.weight.abs().max().item() * fan_in**0.5
        assert largest > 3 if id(module) in he_normal else largest <= 1  # a normal has tails


def test_ends_of_the_blocks(built: deeplab.DeepLab) -> None:
    """Two of the 20 blocks end without ReLU; what the decoder sees of the first one has been through one after all."""
    blocks = [module for module in built.modules() if isinstance(module, deeplab.SeparableBlock)]
    assert [number for number, block in enumerate(blocks, 1) if isinstance(block.relu, nn.Identity)] == [1, 20]
    assert [number for number, block in enumerate(blocks, 1) if block.skip is not None] == [1, 2, 3, 20]
    assert [block.layers[-1][0].stride for block in (*blocks[:3], blocks[-1])] == [(2, 2)] * 3 + [(1, 1)]
    assert all(isinstance(block.layers[-1], nn.BatchNorm2d) for block in blocks[3:19])
    details = []
    hook = built.details.register_forward_pre_hook(lambda module, inputs: details.append(inputs[0]))
    with torch.no_grad():
        built.eval()(normalised(1, (32, 32)))
    hook.remove()
    assert details[0].min().item() == 0


@pytest.mark.parametrize(("batch", "shape"), [(2, SMOKE), (1, (32, 48)), (1, (16, 32)), (3, (64, 16))])
@pytest.mark.slow
def test_logits_are_as_large_as_the_sample(net: deeplab.DeepLab, batch: int, shape: tuple[int, int]) -> None:
    logits = net(normalised(batch, shape))
    assert logits.shape == (batch, 3, *shape)
    assert bool(logits.isfinite().all())


@pytest.mark.parametrize("shape", [(100, 144), (96, 72), (16, 16), (0, 32), (96,), (96, 144, 16)])
@pytest.mark.parametrize("ask", [deepcam.build, lambda variant, shape: deepcam.sample_bytes("fp32", variant, shape)])
def test_other_shapes_are_refused(shape: tuple[int, ...], ask: Any) -> None:
    with pytest.raises(ImpossibleRequest, match=f"cannot take {'x'.join(map(str, shape))}: .* use --shape 768x1152"):
        ask("mlperf", shape)


def test_the_mean_of_the_sample_reaches_every_pixel() -> None:
    """The branch that is pooled: a mean, 1x1, scaled and shifted, ReLU; the same everywhere."""
    torch.manual_seed(0)
    pooled, x = deeplab.PooledBranch(8, 4), torch.rand(2, 8, 3, 5)
    nn.init.uniform_(pooled.scale, -2, 2)
    nn.init.uniform_(pooled.shift, -1, 1)
    mean = x.mean((2, 3)) @ pooled.convolution.weight[:, :, 0, 0].T
    expected = torch.relu(pooled.scale[:, 0, 0] * mean + pooled.shift[:, 0, 0])
    y = pooled(x)
    assert y.shape == (2, 4, 3, 5)
    assert torch.allclose(y, expected[:, :, None, None].expand_as(y), atol=1e-6)


# --- what it costs ---------------------------------------------------------------------------------------------------


def test_flop_of_a_sample_of_768_by_1152() -> None:
    assert deepcam.flop_per_sample("mlperf", (768, 1152)) == pytest.approx((655.34e9, 1963.97e9), rel=1e-5)


@pytest.mark.parametrize("shape", [SMOKE, (32, 48)])
@pytest.mark.slow
def test_flop_counted_layer_by_layer(net: deeplab.DeepLab, shape: tuple[int, int]) -> None:
    """What each convolution has for each number it makes, and each deconvolution for each it is given."""
    counts: list[float] = []

    def count(module: Any, inputs: Any, output: torch.Tensor) -> None:
        pixels = inputs[0] if isinstance(module, nn.ConvTranspose2d) else output
        counts.append(2.0 * module.weight[0].numel() * pixels[0].numel())

    hooks = [module.register_forward_hook(count) for module in convolutions(net)]
    with torch.no_grad():
        net.eval()(normalised(1, shape))
    for hook in hooks:
        hook.remove()
    assert deepcam.flop_per_sample("mlperf", shape) == (sum(counts), 3 * sum(counts) - counts[0])


def test_memory_of_a_sample_goes_with_its_area() -> None:
    def mib(dtype: str, *shape: int) -> float:
        return deepcam.sample_bytes(dtype, "mlperf", shape) / 2**20

    assert (mib("fp32", 768, 1152), mib("bf16", 768, 1152)) == (4670, 2392)
    assert mib("fp16", *SMOKE) == 2392 / 64


# --- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fields_are_normalised_in_the_format_and_dtype_asked_for(channels_last: bool, dtype: torch.dtype) -> None:
    share = torch.rand(2, 8, 12, 16, generator=torch.Generator().manual_seed(1))
    fields = (DATA.minimum + share.double() * (DATA.maximum - DATA.minimum)).float()
    before = fields.clone()
    x = deepcam.Prepare(DATA, CPU, dtype, channels_last)(fields)
    assert x.dtype is dtype
    assert x.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    assert torch.allclose(x.permute(0, 2, 3, 1).float(), share, atol=1e-6 if dtype is torch.float32 else 2e-3)
    assert torch.equal(fields, before)


def test_pressure_is_normalised_before_it_is_rounded() -> None:
    """101,325 and 101,425 Pa are the same number in bf16, and not in what the net is given."""
    fields = torch.zeros(1, 1, 2, 16)
    fields[..., PS] = torch.tensor([101_325.0, 101_425.0])
    assert fields.bfloat16()[0, 0, 0, PS] == fields.bfloat16()[0, 0, 1, PS]
    x = deepcam.Prepare(DATA, CPU, torch.bfloat16, True)(fields)[0, PS, 0]
    assert x.tolist() == pytest.approx([51_325 / 55_000, 51_425 / 55_000], abs=2e-3)
    fields[..., PS] = torch.tensor([101_325.0, 101_925.0])
    assert len(set(deepcam.Prepare(DATA, CPU, torch.bfloat16, True)(fields)[0, PS, 0].tolist())) == 2


def test_a_variable_that_never_changes_is_zero() -> None:
    data = SimpleNamespace(minimum=torch.full((16,), 7.0), maximum=torch.tensor([7.0] * 8 + [9.0] * 8))
    x = deepcam.Prepare(data, CPU, torch.float32, True)(torch.full((1, 2, 2, 16), 7.0))
    assert not x.any()
    assert bool(x.isfinite().all())


def test_loss_by_hand() -> None:
    """Two pixels with even logits: ln 3 each, weighted, and divided by two, not by the weights."""
    assert list(deepcam.WEIGHTS) == pytest.approx([1.00173, 2.61461, 1.71642], abs=5e-6)
    labels = torch.tensor([[[0, 1]]], dtype=torch.uint8)
    loss = deepcam.criterion(torch.zeros(1, 3, 1, 2), labels)
    assert loss.item() == pytest.approx((1.00173 + 2.61461) * 1.0986123 / 2, rel=1e-5)
    certain = torch.tensor([[[[2.0, 0.0]], [[0.0, 0.0]], [[0.0, 0.0]]]])
    first, second = 2.2395447 - 2, 1.0986123  # ln(e^2 + 2) - 2, ln 3
    assert deepcam.criterion(certain, labels).item() == pytest.approx(
        (1.00173 * first + 2.61461 * second) / 2, rel=1e-5
    )


def test_optimizer(built: deeplab.DeepLab) -> None:
    """One rate for all parameters; what LAMB does with it: tests/models/test_lamb.py."""
    (group,) = deepcam.make_optimizer(built).param_groups
    assert group["lr"] == 0.0055
    assert len(group["params"]) == len(list(built.parameters()))


def test_learning_rate_of_a_long_run() -> None:
    schedule = deepcam.Schedule(steps=5000, steps_per_epoch=10, global_batch=1024)
    peak = 0.0055
    expected = {0: peak / 400, 199: peak / 2, 399: peak, 400: peak, 1199: peak, 1200: peak / 10, 4999: peak / 10}
    assert {step: schedule.rate(step) for step in expected} == pytest.approx(expected)


def test_learning_rate_of_a_short_run() -> None:
    schedule = deepcam.Schedule(steps=100, steps_per_epoch=10, global_batch=32)
    assert [schedule.rate(step) for step in (0, 4, 9, 99)] == pytest.approx([0.00055, 0.00275, 0.0055, 0.0055])
    assert deepcam.Schedule(steps=4, steps_per_epoch=10, global_batch=32).rate(0) == 0.0055
    assert deepcam.Schedule(steps=400, steps_per_epoch=10, global_batch=32).warmup_steps == 400


def test_mlperf_names() -> None:
    assert deepcam.Schedule(steps=160, steps_per_epoch=10, global_batch=32).mlperf() == {
        "opt_name": "LAMB",
        "opt_lr": 0.0055,
        "opt_betas": [0.9, 0.999],
        "opt_eps": 1e-6,
        "opt_weight_decay": 1e-2,
        "opt_bias_correction": True,
        "opt_grad_averaging": True,
        "opt_max_grad_norm": 1.0,
        "scheduler_type": "multistep",
        "scheduler_milestones": [800],
        "scheduler_decay_rate": 0.1,
        "scheduler_lr_warmup_steps": 16,
        "scheduler_lr_warmup_factor": 1.0,
        "batchnorm_group_size": 1,
    }
