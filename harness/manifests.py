"""A test's own manifest for Kubernetes: a path, parsed objects, or a function of the test's parameters."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from platforms.config.loading import nearest
from platforms.config.schema import Platform
from platforms.schedulers import backend_of

PLACE = ("kubeconfig", "context", "namespace")  # they replace those of the platform
ALL = ("parameters", "params")  # a function's argument of this name gets all parameters

Parsed = Mapping[str, object] | Sequence[Mapping[str, object]]


def check(definition: pytest.Item, mark: Mapping[str, object], where: str) -> None:
    """Check the manifest and the cluster of a mark, before anything uses them. Raises UsageError."""
    for name in PLACE:
        if name not in mark:
            continue
        value = mark[name]
        if not isinstance(value, str | Path) or not str(value):
            raise pytest.UsageError(f"{where}: {name} is a text, as in {name}='mine'")
    manifest = mark.get("manifest")
    if isinstance(manifest, str | Path):
        path = _from_test(definition, manifest)
        if not path.is_file():
            raise pytest.UsageError(f"{where}: manifest: {path}: no such file (a path begins at the test's file)")
    elif callable(manifest):
        _arguments(manifest, where)
    elif "manifest" in mark and not _is_parsed(manifest):
        raise pytest.UsageError(
            f"{where}: manifest is a path, a dict, a list of dicts, or a function of the test's parameters"
        )


def suits(mark: Mapping[str, object], platform: Platform) -> bool:
    """Tell whether a platform can run a test: a test with only a manifest needs a scheduler that takes manifests."""
    if "benchmark" in mark or "command" in mark:
        return True
    return backend_of(platform).takes_manifests


def of(item: pytest.Item, mark: Mapping[str, object], parameters: Mapping[str, object]) -> dict[str, Any]:
    """Make `manifest` and `cluster` of a JobSpec. Raises UsageError for a function that fails or makes no manifest."""
    cluster = {name: str(mark[name]) for name in PLACE if name in mark}
    if "kubeconfig" in cluster:
        cluster["kubeconfig"] = str(_from_test(item, cluster["kubeconfig"]))
    manifest = mark.get("manifest")
    if isinstance(manifest, str | Path):
        manifest = _from_test(item, manifest)
    elif callable(manifest):
        manifest = _call(manifest, parameters, f"{item.nodeid}: @pytest.mark.workload")
    return {"manifest": manifest, "cluster": cluster}


def _from_test(item: pytest.Item, path: str | Path) -> Path:
    """Resolve a path, which begins at the test's file."""
    return item.path.parent / Path(path).expanduser()


def _is_parsed(manifest: object) -> bool:
    if isinstance(manifest, list | tuple):
        return bool(manifest) and all(isinstance(obj, Mapping) for obj in manifest)
    return isinstance(manifest, Mapping)


def _call(function: Callable[..., Any], parameters: Mapping[str, object], where: str) -> Parsed:
    name = getattr(function, "__name__", repr(function))
    keywords: dict[str, object] = {}
    for argument, needed in _arguments(function, where).items():
        if argument in ALL and argument not in parameters:
            keywords[argument] = dict(parameters)
        elif argument in parameters:
            keywords[argument] = parameters[argument]
        elif needed:
            hint = nearest(argument, [*parameters, ALL[0]])
            raise pytest.UsageError(f"{where}: manifest: {name} asks for {argument!r}, which the test has not {hint}")
    try:
        manifest = function(**keywords)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
        raise pytest.UsageError(f"{where}: manifest: {name} failed: {message}") from error
    if not _is_parsed(manifest):
        raise pytest.UsageError(
            f"{where}: manifest: {name} returned {manifest!r:.60}; it must be a dict or a list of dicts"
        )
    parsed: Parsed = manifest
    return parsed


def _arguments(function: Callable[..., Any], where: str) -> dict[str, bool]:
    """List the names of a function's keyword arguments, and whether each of them is required."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise pytest.UsageError(f"{where}: manifest: {function!r} does not say what it takes; use a def") from None
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    arguments = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind in kinds:
            arguments[name] = parameter.default is parameter.empty
    return arguments
