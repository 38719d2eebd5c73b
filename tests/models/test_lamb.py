"""Is it the LAMB of the paper and of apex's FusedLAMB? Its steps, computed once more by hand in fp64."""

from __future__ import annotations

import pytest
import torch

from models.errors import ImpossibleRequest
from models.lamb import Lamb

BETAS = (0.9, 0.999)
EPS = 1e-6
DECAY = 0.01


def by_hand(
    weights: list[torch.Tensor], steps: list[list[torch.Tensor]], rates: list[float], clip: float
) -> list[torch.Tensor]:
    """The weights after so many steps, each with its gradients and rate: You et al. 2020, algorithm 2, and clipping."""
    weights = [weight.clone() for weight in weights]
    first = [torch.zeros_like(weight) for weight in weights]
    second = [torch.zeros_like(weight) for weight in weights]
    for number, (gradients, rate) in enumerate(zip(steps, rates, strict=True), 1):
        norm = sum(float(gradient.square().sum()) for gradient in gradients) ** 0.5
        for index, gradient in enumerate(gradients):
            clipped = gradient * min(1.0, clip / norm)
            first[index] = BETAS[0] * first[index] + (1 - BETAS[0]) * clipped
            second[index] = BETAS[1] * second[index] + (1 - BETAS[1]) * clipped**2
            mean = first[index] / (1 - BETAS[0] ** number)
            square = second[index] / (1 - BETAS[1] ** number)
            update = mean / (square.sqrt() + EPS) + DECAY * weights[index]
            lengths = float(weights[index].norm()), float(update.norm())
            ratio = lengths[0] / lengths[1] if min(lengths) > 0 else 1.0
            weights[index] = weights[index] - rate * ratio * update
    return weights


@pytest.mark.parametrize("size", [0.01, 10.0])
def test_steps_by_hand(size: float) -> None:
    """Gradients below and above the norm that is clipped to; a tensor of zeros, and one whose gradient is 0."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    weights = [random(4, 3), torch.zeros(5, dtype=torch.float64), random(2)]
    steps = [[size * random(4, 3), size * random(5), torch.zeros(2, dtype=torch.float64)] for _ in range(4)]
    rates = [0.0, 0.1, 0.1, 0.01]
    parameters = [torch.nn.Parameter(weight.clone()) for weight in weights]
    optimizer = Lamb(parameters, lr=1.0, betas=BETAS, eps=EPS, weight_decay=DECAY, max_norm=1.0)
    for gradients, rate in zip(steps, rates, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    for actual, expected in zip(parameters, by_hand(weights, steps, rates, clip=1.0), strict=True):
        assert torch.allclose(actual, expected, rtol=1e-12, atol=1e-12)


def test_a_step_is_a_share_of_the_weights_however_large_the_gradient() -> None:
    weight = torch.nn.Parameter(torch.full((100,), 2.0))
    optimizer = Lamb([weight], lr=0.1, betas=BETAS, eps=EPS, weight_decay=DECAY)
    weight.grad = torch.full((100,), 1e6)
    optimizer.step()
    assert torch.allclose(weight, torch.tensor(1.8))


def test_without_weight_decay_it_would_be_another_algorithm() -> None:
    with pytest.raises(ImpossibleRequest, match="weight_decay is 0"):
        Lamb([torch.nn.Parameter(torch.ones(1))], lr=0.1, betas=BETAS, eps=EPS, weight_decay=0.0)
