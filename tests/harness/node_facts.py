"""Sessions of tests look at their nodes only where the platform's file asks for it: on a busy machine the number of any
command would be in doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness import spec
from platforms.config.schema import Platform

_has_facts = spec._has_facts


def where_asked(
    benchmark: str | None, arguments: Sequence[str], platform: Platform, manifest: Mapping[str, object]
) -> bool:
    """In place of the harness's own."""
    return "node_facts" in platform.model_fields_set and _has_facts(benchmark, arguments, platform, manifest)
