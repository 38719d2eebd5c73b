"""Stands for grpc, of which cerebras.pytorch needs much and models/ one name."""

from __future__ import annotations

from types import SimpleNamespace


class RpcError(Exception):
    def code(self) -> SimpleNamespace:
        return SimpleNamespace(name=str(self))
