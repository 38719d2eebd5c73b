"""How long a checkpoint takes: model and optimiser are written after the windows, and read again from storage.

torch.distributed.checkpoint does both, as the trainings of large models do: all ranks write at the same time, each its
share of a model that is split, or of the copies of one that is not.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
import warnings
from typing import Any, Dict, List

import torch
import torch.distributed.checkpoint as dcp

from models.data import pagecache
from models.data.file_list import printable
from models.errors import CommandError, ImpossibleRequest
from models.ranks import Ranks
from models.sharding import own_part


def check(folder: str) -> None:
    """Raise ImpossibleRequest if a checkpoint cannot be written there, or torch is too old."""
    if not hasattr(dcp, "save"):
        raise ImpossibleRequest(f"--checkpoint needs torch 2.3 or newer, and this is {torch.__version__}: leave it out")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ImpossibleRequest(
            f"--checkpoint {printable(folder)} is no folder that this rank can write: make it, or give another one"
        )


def measure(folder: str, model: Any, optimizer: Any, ranks: Ranks) -> Dict[str, object]:
    """Write a checkpoint below `folder`, read it again, and remove it. All ranks call this.

    Return `write_s`, until the files are on storage; `read_s`, from storage where `cold` is true, which is a
    restart's; `bytes` of all files; and `identical`: whether each rank has its own weights back.

    Raises CheckpointException on every rank if one cannot write or read, as on a full disk.
    """
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    path = os.path.join(folder, "hpc-ml-bench-checkpoint-" + ranks.gather(uuid.uuid4().hex[:12])[0])
    before = _own_values(model)
    state_model, state_optimizer = get_state_dict(model, optimizer)
    state = {"model": state_model, "optimizer": state_optimizer}
    warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one rank needs none
    try:
        begin_s = _together(ranks)
        dcp.save(state, storage_writer=dcp.FileSystemWriter(path, sync_files=True))
        write_s = _together(ranks) - begin_s

        files = [os.fsencode(os.path.join(path, name)) for name in sorted(os.listdir(path))]
        cold = all(ranks.gather(_is_dropped(files)))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        begin_s = _together(ranks)
        dcp.load(state, storage_reader=dcp.FileSystemReader(path))
        set_state_dict(model, optimizer, model_state_dict=state_model, optim_state_dict=state_optimizer)
        read_s = _together(ranks) - begin_s

        identical = all(torch.equal(old, new) for old, new in zip(before, _own_values(model)))
        return {
            "write_s": write_s,
            "read_s": read_s,
            "cold": cold,
            "bytes": sum(os.path.getsize(file) for file in files),
            "identical": all(ranks.gather(identical)),
        }
    finally:
        if ranks.world.local_rank == 0:  # the folder may be a node's own
            shutil.rmtree(path, ignore_errors=True)


def _together(ranks: Ranks) -> float:
    """Return the time at which every rank has come here, in seconds of this rank's clock."""
    ranks.barrier()
    return time.perf_counter()


def _own_values(model: Any) -> List[torch.Tensor]:
    """Return a copy of what this rank has of each parameter, on the host."""
    return [own_part(parameter).to("cpu", copy=True) for parameter in model.parameters()]


def _is_dropped(files: List[bytes]) -> bool:
    """Drop the files from this node's page cache; return whether they are gone."""
    try:
        pagecache.drop(files)
        inside, size = pagecache.resident(files) or (1, 1)
    except (OSError, CommandError):
        return False
    return inside < pagecache.COLD * size
