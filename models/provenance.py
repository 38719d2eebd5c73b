"""The value of hpcml_start (docs/wire.md): the code, request, data, libraries and machine behind a result."""

from __future__ import annotations

import os
import platform
import re
import sys
from typing import Dict, Optional, Tuple

import torch

from models import cgroups, host
from models.training_setup import TrainingSetup, tokens_per_sample

# Packages whose versions stand in the log if they were imported.
PACKAGES = {
    "numpy": "numpy",
    "PIL": "pillow",
    "h5py": "h5py",
    "torchvision": "torchvision",
    "simplejpeg": "simplejpeg",
    "deflate": "deflate",
    "google_crc32c": "google_crc32c",
    "cerebras.pytorch": "cerebras-pytorch",
    "poptorch": "poptorch",
}


def start_value(setup: TrainingSetup, backend: Optional[str], replicas: Optional[Tuple[int, int]]) -> Dict[str, object]:
    """Return the value of hpcml_start.

    backend: of torch.distributed; None for one rank. replicas: of the training step (models.steps.TrainingStep).
    """
    world = setup.world
    copies = {} if replicas is None else {"replicas": replicas[0], "devices_per_replica": replicas[1]}
    data = setup.data
    tokens = tokens_per_sample(setup)
    return {
        "schema": 1,
        "benchmark": setup.name,
        "workload_version": setup.benchmark.WORKLOAD_VERSION,
        "code": code_hash(__file__),
        "request": setup.request.wire(),
        "device": {**setup.accelerator.facts(setup.request.dtype), "multiplied_in": setup.multiplied_in or None},
        "world": {
            "size": world.size,
            "local_size": world.local_size,
            "nodes": world.nodes,
            "backend": backend,
            "launcher": world.launcher,
            **copies,
        },
        "versions": versions(),
        "host": {
            "name": platform.node(),
            "kernel": platform.release(),
            "cpu": host.cpu_name(),
            "cores": host.own_cores(),
            "cpu_quota": cgroups.on_wire(cgroups.cpu_quota()),
            "memory_bytes": host.memory_bytes(),
            "threads": torch.get_num_threads(),
        },
        "data": {
            "folder": os.path.abspath(setup.options.data_dir),
            "kind": data.kind,
            "format": data.format,
            "samples": len(data),
            "bytes": data.bytes,
            "bytes_per_sample": setup.bytes_per_sample,
            "decoder": data.decoder,
            "transforms": data.transforms,
            "resident": setup.resident,
            **({"tokens_per_sample": tokens} if tokens else {}),
        },
    }


def code_hash(file: str) -> Optional[str]:
    """Return the hash in the name of the archive `models-<hash>.pyz` that holds this file; None outside an archive."""
    match = re.search(r"\bmodels-([0-9a-f]{12})\.pyz\b", file)
    return match[1] if match else None


def versions() -> Dict[str, object]:
    """Return the versions of Python, torch, the libraries that torch was built with, and the imported packages."""
    found: Dict[str, object] = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    if torch.version.hip:
        found["hip"] = torch.version.hip
    if torch.cuda.is_available():
        found["cudnn"] = torch.backends.cudnn.version()
        nccl = getattr(torch.cuda, "nccl", None)
        found["nccl"] = ".".join(str(part) for part in nccl.version()) if nccl else None
        if torch.version.hip:  # the library that answers there is RCCL, whose versions are those of the NCCL it follows
            found["rccl"] = found["nccl"]
    for module, name in PACKAGES.items():
        if module in sys.modules:
            found[name] = getattr(sys.modules[module], "__version__", None)
    return found
