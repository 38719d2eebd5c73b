"""JSON trees as objects are: copied, compared, stamped with a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

Tree = dict[str, Any]


def deep_copy(tree: Any) -> Any:
    """A deep copy, several times as fast as copy.deepcopy."""
    if isinstance(tree, dict):
        return {key: deep_copy(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [deep_copy(value) for value in tree]
    return tree


def is_older(obj: Tree, known: Tree | None) -> bool:
    """Whether obj is the object as it was before `known`: who has written it knows more than the event that comes."""
    if known is None or obj["metadata"]["uid"] != known["metadata"]["uid"]:
        return False
    return int(obj["metadata"]["resourceVersion"]) < int(known["metadata"]["resourceVersion"])


def timestamp(unix_s: float | None = None) -> str:
    """metav1.Time, now by default: whole seconds, `2026-11-20T22:11:16Z`."""
    moment = datetime.now(UTC) if unix_s is None else datetime.fromtimestamp(unix_s, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def unix(text: str) -> float:
    """Of a timestamp with or without fractions (nanoseconds are cut to microseconds)."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    seconds = datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp()
    return seconds + float(f"0.{fraction or 0}")


def merge_patched(tree: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return deep_copy(patch)
    result = dict(tree) if isinstance(tree, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patched(result.get(key), value)
    return result
