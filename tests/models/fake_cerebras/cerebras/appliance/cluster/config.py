"""cerebras-pytorch 2.10.0: appliance/cluster/config.py. This machine stands for a user node."""

from __future__ import annotations

import pathlib
from types import SimpleNamespace

CSCONFIG_PATH = pathlib.Path(__file__)


class ClusterConfigError(RuntimeError): ...


def load_cs_cluster_config() -> tuple[pathlib.Path, SimpleNamespace]:
    return CSCONFIG_PATH, SimpleNamespace(fabric_type="cs3")
