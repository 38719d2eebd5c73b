"""[python/optim.py]"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


class SGD(torch.optim.SGD):
    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        momentum: float | None = None,
        dampening: float | None = None,
        weight_decay: float | None = None,
        nesterov: bool | None = None,
        loss_scaling: float | None = None,
    ) -> None:
        given = {"momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov}
        super().__init__(params, lr=lr, **{name: value for name, value in given.items() if value is not None})
        self.loss_scaling = 1.0 if loss_scaling is None else loss_scaling
