"""Helpers for objects as JSON trees: copy, compare, merge, timestamps."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

Tree = dict[str, Any]


def deep_copy(tree: Any) -> Any:
    """Return a deep copy, several times as fast as copy.deepcopy."""
    if isinstance(tree, dict):
        return {key: deep_copy(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [deep_copy(value) for value in tree]
    return tree


def is_older(obj: Tree, known: Tree | None) -> bool:
    """Return whether obj is an older version of `known`: a controller knows its own write before the event comes."""
    if known is None or obj["metadata"]["uid"] != known["metadata"]["uid"]:
        return False
    return int(obj["metadata"]["resourceVersion"]) < int(known["metadata"]["resourceVersion"])


def timestamp(unix_s: float | None = None) -> str:
    """Return a time, now by default, as `2026-11-20T22:11:16Z`, in whole seconds."""
    moment = datetime.now(UTC) if unix_s is None else datetime.fromtimestamp(unix_s, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def unix(text: str) -> float:
    """Return the Unix seconds of a timestamp with or without fractions."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    seconds = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp()
    return seconds + float(f"0.{fraction or 0}")


def merge_patched(tree: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return deep_copy(patch)
    result = dict(tree) if isinstance(tree, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patched(result.get(key), value)
    return result
