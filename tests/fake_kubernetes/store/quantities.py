"""Quantities: `500m`, `1Gi`, `1e3`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

PATTERN = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
SUFFIXES = {suffix: Fraction(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
SUFFIXES |= {suffix: Fraction(1000) ** power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), 1)}
SUFFIXES |= {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)}


def quantity(text: str | float) -> Fraction:
    """Return a quantity as a number. Raises ValueError with the API server's message."""
    found = re.match(PATTERN, str(text))
    if not found:
        raise ValueError(f"quantities must match the regular expression '{PATTERN}'")
    number, suffix = found.groups()
    if re.fullmatch(r"[eE][-+]?[0-9]+", suffix):
        return Fraction(number + suffix)
    if suffix not in SUFFIXES:
        raise ValueError("unable to parse quantity's suffix")
    return Fraction(number) * SUFFIXES[suffix]


def requests_of(container: Mapping[str, Any]) -> dict[str, str]:
    """Return what a container requests; a limit counts as the request if there is none."""
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def canonical(text: str | float) -> str:
    """Return a quantity as the API server writes it: a suffix stays, a fraction becomes thousandths."""
    value = quantity(text)
    if isinstance(text, str) and not text[-1].isdigit():
        return text
    return str(value) if value.denominator == 1 else f"{-(-value * 1000 // 1)}m"
