"""A model of which each rank has a share: FSDP2 gathers the weights of a block when it is computed, and drops them.

Source: torch.distributed.fsdp.fully_shard (Zhao et al. 2023, and its second form in torch 2.6).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from models.dtypes import TORCH_DTYPES
from models.errors import ImpossibleRequest


def own_part(parameter: Any) -> torch.Tensor:
    """Return what this rank has of a parameter: all of it, or its share where the model is split."""
    values = parameter.to_local() if is_split(parameter) else parameter
    part: torch.Tensor = values.detach()
    return part


def is_split(parameter: Any) -> bool:
    return hasattr(parameter, "to_local")


def build_sharded(model: Any, device: torch.device, dtype: str) -> Any:
    """Split a model without weights over all ranks, and give each its share of the weights.

    model: on the meta device, with `blocks` and `draw(name, tensor)`. The weights are those that `draw` gives an
    unsplit model after the same torch.manual_seed, one parameter at a time, so that no rank ever holds all of them.
    """
    try:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    except ImportError:
        raise ImpossibleRequest(
            f"FSDP2 came with torch 2.6, and this is {torch.__version__}: use --shard off"
        ) from None
    from torch.distributed.device_mesh import init_device_mesh

    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(device.type, (ranks,))
    policy = MixedPrecisionPolicy()
    if dtype != "fp32":
        # Inputs keep their dtype: the angles of positions stay fp32, and torch before 2.13 casts none when a block
        # is computed again.
        policy = MixedPrecisionPolicy(
            param_dtype=TORCH_DTYPES[dtype], reduce_dtype=torch.float32, cast_forward_inputs=False
        )
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device=device)
    for name, parameter in model.named_parameters():
        whole = torch.empty(parameter.shape, dtype=parameter.dtype)  # on the host, as an unsplit model is drawn
        model.draw(name, whole)
        shares = whole.chunk(ranks)  # as FSDP2 splits; of few rows the last ranks have none
        if rank < len(shares):
            own_part(parameter).copy_(shares[rank])
    return model
