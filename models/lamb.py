"""LAMB, with which MLPerf HPC's reference trains DeepCAM: Adam's step, as long as the weights of its tensor say.

You et al. 2020, as apex.optimizers.FusedLAMB computes it with its defaults, which MLPerf HPC's rules prescribe: bias
correction, averaged gradients, all gradients together clipped to a norm of 1, weight decay added to the step and not to
the gradient, and the same for every tensor.
"""

from __future__ import annotations

from typing import Any, Iterable, Tuple

import torch

from models.errors import Impossible


class Lamb(torch.optim.Optimizer):
    """Takes the steps w - lr * (|w| / |u|) * u of each tensor w, where u = Adam's step at rate 1 + weight_decay * w.

    lr, betas, eps: as of torch.optim.Adam. weight_decay: above 0; without it FusedLAMB would not look at lengths.
    max_norm: what the norm of all gradients together is clipped to. Where |w| or |u| is 0, their ratio counts as 1.

    Adam's step is left to torch, which has it in one pass over memory: it moves tensors of zeros by it. Nothing waits
    for the device. Beside Adam's memory it keeps one number per weight.
    """

    def __init__(
        self,
        parameters: Iterable[torch.nn.Parameter],
        *,
        lr: float,
        betas: Tuple[float, float],
        eps: float,
        weight_decay: float,
        max_norm: float = 1.0,
    ) -> None:
        if weight_decay <= 0:
            raise Impossible(f"LAMB without weight decay is another algorithm; weight_decay is {weight_decay:g}")
        super().__init__(parameters, {"lr": lr})
        self._weight_decay, self._max_norm = weight_decay, max_norm
        self._parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        self._steps = [torch.nn.Parameter(torch.zeros_like(parameter)) for parameter in self._parameters]
        devices = {parameter.device.type for parameter in self._parameters}
        fused = torch.__version__ >= "2.4" and devices <= {"cpu", "cuda"}
        self._adam = torch.optim.Adam(self._steps, lr=1.0, betas=betas, eps=eps, fused=fused)

    def step(self, closure: Any = None) -> None:
        """Every parameter must have its gradient; the gradients are left clipped."""
        with torch.no_grad():
            self._step(self.param_groups[0]["lr"])

    def _step(self, rate: float) -> None:
        gradients = [parameter.grad for parameter in self._parameters]
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        torch._foreach_mul_(gradients, (self._max_norm / norm).clamp(max=1.0))

        torch._foreach_zero_(self._steps)
        for step, gradient in zip(self._steps, gradients):
            step.grad = gradient
        self._adam.step()  # downwards, so that the steps are to be added
        for step in self._steps:
            step.grad = None
        torch._foreach_add_(self._steps, self._parameters, alpha=-self._weight_decay)

        weights, lengths = (torch.stack(torch._foreach_norm(each)) for each in (self._parameters, self._steps))
        ratios = torch.where((weights > 0) & (lengths > 0), weights / lengths, torch.ones_like(weights))
        torch._foreach_addcmul_(self._parameters, self._steps, list(ratios.unbind()), value=rate)
