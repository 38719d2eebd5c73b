"""LAMB, the optimiser of MLPerf HPC's DeepCAM: Adam's step, scaled in each tensor by the norm of its weights.

You et al. 2020, as apex.optimizers.FusedLAMB computes it with its defaults, which MLPerf HPC's rules prescribe: bias
correction, averaged gradients, all gradients together clipped to a norm of 1, weight decay added to the step and not to
the gradient, and the same for every tensor.
"""

from __future__ import annotations

from typing import Any, Iterable, Tuple

import torch

from models.errors import ImpossibleRequest


class Lamb(torch.optim.Optimizer):
    """Updates each tensor w to w - lr * (|w| / |u|) * u, where u is Adam's step at rate 1 plus weight_decay * w.

    lr, betas, eps: as in torch.optim.Adam. weight_decay: above 0; without it FusedLAMB does not scale by the norms.
    max_norm: the norm to which all gradients together are clipped. Where |w| or |u| is 0, their ratio counts as 1.

    torch computes Adam's step, which its fused kernel does in one pass over memory: it updates tensors of zeros, which
    then hold the step. The host does not wait for the device. Beside Adam's memory this needs one number per weight.
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
            raise ImpossibleRequest(f"LAMB without weight decay is another algorithm; weight_decay is {weight_decay:g}")
        super().__init__(parameters, {"lr": lr})
        self._weight_decay = weight_decay
        self._max_norm = max_norm
        self._parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        self._steps = [torch.nn.Parameter(torch.zeros_like(parameter)) for parameter in self._parameters]
        devices = {parameter.device.type for parameter in self._parameters}
        fused = torch.__version__ >= "2.4" and devices <= {"cpu", "cuda"}
        self._adam = torch.optim.Adam(self._steps, lr=1.0, betas=betas, eps=eps, fused=fused)

    def step(self, closure: Any = None) -> None:
        """Update the parameters, each of which must have a gradient; the gradients are left clipped."""
        with torch.no_grad():
            self._step(self.param_groups[0]["lr"])

    def _step(self, rate: float) -> None:
        # Clip all gradients together.
        gradients = [parameter.grad for parameter in self._parameters]
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        torch._foreach_mul_(gradients, (self._max_norm / norm).clamp(max=1.0))

        # Let Adam write its step into tensors of zeros, then add the weight decay. Adam subtracts, hence the signs.
        torch._foreach_zero_(self._steps)
        for step, gradient in zip(self._steps, gradients):
            step.grad = gradient
        self._adam.step()
        for step in self._steps:
            step.grad = None
        torch._foreach_add_(self._steps, self._parameters, alpha=-self._weight_decay)

        # Scale each tensor's step by the norm of its weights, and add it.
        weight_norms = torch.stack(torch._foreach_norm(self._parameters))
        step_norms = torch.stack(torch._foreach_norm(self._steps))
        has_ratio = (weight_norms > 0) & (step_norms > 0)
        ratios = torch.where(has_ratio, weight_norms / step_norms, torch.ones_like(weight_norms))
        torch._foreach_addcmul_(self._parameters, self._steps, list(ratios.unbind()), value=rate)
