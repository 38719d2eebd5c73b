"""cerebras-pytorch 2.10.0: appliance/cluster/client.py."""

from __future__ import annotations


class MissingVolumeError(RuntimeError): ...
