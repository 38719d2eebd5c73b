"""cerebras-pytorch 2.10.0: appliance/cluster/config.py. This machine stands for a user node."""

from __future__ import annotations

import os
import pathlib

CSCONFIG_PATH = pathlib.Path(os.environ.get("FAKE_CSX_CLUSTER", __file__))
