"""cerebras-pytorch 2.10.0: pytorch/utils/; the package above fills `data`."""

from __future__ import annotations

from typing import Any

data: Any = None
