"""cerebras-pytorch 2.10.0: appliance/errors.py, the classes that models/ tells apart."""

from __future__ import annotations


class ApplianceClientException(Exception): ...


class ApplianceCompilationError(ApplianceClientException): ...


class ApplianceResourceExhausted(ApplianceClientException): ...


class ApplianceRuntimeServerError(ApplianceClientException): ...


class ApplianceVersionError(ApplianceClientException): ...
