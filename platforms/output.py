"""What the commands print: tables of leftovers, sizes and ages, the question before a removal, errors."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from platforms.printable import printable
from platforms.rundir.retention import DAY_S, Leftover

NAME_WIDTH = 40  # characters at most to which a column of names is padded


def leftover_table(leftovers: Sequence[Leftover], action: str) -> list[str]:
    """List leftovers, a line each: those that go first, then those that are kept, the oldest first.

    Args:
        action: what happens to those that go.

    Returns:
        The lines. Leftovers that are merely too young are only counted, in the last line.
    """
    listed = [leftover for leftover in leftovers if not leftover.young]
    listed.sort(key=lambda leftover: (bool(leftover.stays), -leftover.age_s))
    width = max((len(leftover.name) for leftover in listed), default=0)
    width = min(width, NAME_WIDTH)
    lines = []
    for leftover in listed:
        name = printable(leftover.name)
        fate = f"stays: {printable(leftover.stays)}" if leftover.stays else action
        size = "-" if leftover.size_bytes is None else format_size(leftover.size_bytes)
        lines.append(f"{name:<{width}}  {format_age(leftover.age_s):>8}  {size:>7}  {fate}")
    young = len(leftovers) - len(listed)
    if young:
        lines.append(f"{young} younger ones stay")
    return lines


def format_age(seconds: float) -> str:
    """Write an age as `45 days`, `5 h` or `20 min`."""
    for unit_s, unit in ((DAY_S, "days"), (3600.0, "h")):
        if seconds >= 2 * unit_s:
            return f"{seconds // unit_s:.0f} {unit}"
    return f"{max(0.0, seconds) // 60:.0f} min"


def format_size(count: float) -> str:
    """Write a number of bytes as `512 B` or `1.2 MB`."""
    units = ["B", "kB", "MB", "GB", "TB"]
    power = 0
    while power < len(units) - 1 and count >= 1000 ** (power + 1):
        power += 1
    number = count / 1000**power
    digits = 0 if power == 0 or number >= 100 else 1
    return f"{number:.{digits}f} {units[power]}"


def print_indented(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"  {line}")


def confirm_removal(*, yes: bool, dry_run: bool) -> bool:
    """Ask whether the leftovers listed above may be removed. Without a terminal the answer is no."""
    if dry_run:
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        print("nothing was removed (--yes removes what is shown)")
        return False
    try:
        return input("remove all that goes? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def print_errors(errors: Sequence[str]) -> int:
    """Print each error to stderr. Returns the exit code: 1 if there is an error, else 0."""
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    return 1 if errors else 0
