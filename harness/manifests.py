"""A test's own manifest, for Kubernetes: a file, what is in one, or a function of the test's parameters."""

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

PLACE = ("kubeconfig", "context", "namespace")  # in place of the platform's
ALL = ("parameters", "params")  # a function's argument of such a name is given all of them

Parsed = Mapping[str, object] | Sequence[Mapping[str, object]]


def check(definition: pytest.Item, mark: Mapping[str, object], where: str) -> None:
    """Raise UsageError for a manifest or a place that is none, before anything is made of it."""
    for name in PLACE:
        if name in mark and not (isinstance(mark[name], str | Path) and str(mark[name])):
            raise pytest.UsageError(f"{where}: {name} is a text, as in {name}='mine'")
    manifest = mark.get("manifest")
    if isinstance(manifest, str | Path):
        if not (path := _beside(definition, manifest)).is_file():
            raise pytest.UsageError(f"{where}: manifest: {path}: no such file (a path begins at the test's file)")
    elif callable(manifest):
        _arguments(manifest, where)
    elif "manifest" in mark and not _is_parsed(manifest):
        raise pytest.UsageError(
            f"{where}: manifest is a path, a dict, a list of dicts, or a function of the test's parameters"
        )


def suits(mark: Mapping[str, object], platform: Platform) -> bool:
    """Whether a test has anything to run there: a manifest alone is only for schedulers that take one."""
    return backend_of(platform).takes_manifests or bool({"benchmark", "command"} & mark.keys())


def of(item: pytest.Item, mark: Mapping[str, object], parameters: Mapping[str, object]) -> dict[str, Any]:
    """`manifest` and `cluster` of a JobSpec. Raises UsageError for a function that cannot be called, or makes none."""
    cluster = {name: str(mark[name]) for name in PLACE if name in mark}
    if "kubeconfig" in cluster:
        cluster["kubeconfig"] = str(_beside(item, cluster["kubeconfig"]))
    manifest = mark.get("manifest")
    if isinstance(manifest, str | Path):
        manifest = _beside(item, manifest)
    elif callable(manifest):
        manifest = _made(manifest, parameters, f"{item.nodeid}: @pytest.mark.workload")
    return {"manifest": manifest, "cluster": cluster}


def _beside(item: pytest.Item, path: str | Path) -> Path:
    """A path that begins at the test's file."""
    return item.path.parent / Path(path).expanduser()


def _is_parsed(manifest: object) -> bool:
    if isinstance(manifest, list | tuple):
        return bool(manifest) and all(isinstance(each, Mapping) for each in manifest)
    return isinstance(manifest, Mapping)


def _made(function: Callable[..., Any], parameters: Mapping[str, object], where: str) -> Parsed:
    wanted = _arguments(function, where)
    name = getattr(function, "__name__", repr(function))
    keywords: dict[str, object] = {}
    for argument, needed in wanted.items():
        if argument in ALL and argument not in parameters:
            keywords[argument] = dict(parameters)
        elif argument in parameters:
            keywords[argument] = parameters[argument]
        elif needed:
            hint = nearest(argument, [*parameters, ALL[0]])
            raise pytest.UsageError(f"{where}: manifest: {name} asks for {argument!r}, which the test has not {hint}")
    try:
        made = function(**keywords)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
        raise pytest.UsageError(f"{where}: manifest: {name} failed: {what}") from error
    if not _is_parsed(made):
        raise pytest.UsageError(
            f"{where}: manifest: {name} returned {made!r:.60}; it must be a dict or a list of dicts"
        )
    parsed: Parsed = made
    return parsed


def _arguments(function: Callable[..., Any], where: str) -> dict[str, bool]:
    """The names that a function takes as keywords, and whether it must have them."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise pytest.UsageError(f"{where}: manifest: {function!r} does not say what it takes; use a def") from None
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: one.default is one.empty for name, one in signature.parameters.items() if one.kind in kinds}
