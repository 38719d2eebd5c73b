"""Stands for grpc, of which cerebras.pytorch needs much and models/ one name."""

from __future__ import annotations


class RpcError(Exception): ...
