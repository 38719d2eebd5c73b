"""How long what runs have left is kept, and how it is shown, and asked about, before it goes: here and elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

DAY_S = 86400.0


@dataclass(frozen=True)
class Keep:
    """For how many days after its last change something stays. What failed stays longer: somebody may look at it."""

    days: float = 30.0
    failed_days: float = 180.0

    def __str__(self) -> str:
        longer = max(self.days, self.failed_days)
        return f"{self.days:g} days after its last change a run may go, {longer:g} days where it failed"

    def young(self, age_s: float) -> bool:
        """Whether it stays for its age alone."""
        return age_s < self.days * DAY_S

    def failed(self, age_s: float, why: str) -> str:
        """Why something that is not `young` stays, where `why` says what is wrong with it; empty when it goes."""
        days = max(self.days, self.failed_days)
        return f"{why}: {days:g} days" if why and age_s < days * DAY_S else ""


@dataclass(frozen=True)
class Leftover:
    """Something that a run has left. `age_s` since its last change; `stays` says why it is kept, else it goes."""

    name: str
    age_s: float
    size_bytes: int
    stays: str = ""
    young: bool = False

    @property
    def goes(self) -> bool:
        return not self.stays and not self.young


def table(found: Sequence[Leftover], verb: str) -> list[str]:
    """A line each, what goes first; of those that are merely young only their number."""
    young = sum(each.young for each in found)
    chosen = sorted((each for each in found if not each.young), key=lambda each: (bool(each.stays), -each.age_s))
    names = [shown(each.name) for each in chosen]
    width = min(40, max(map(len, names), default=0))
    lines = [
        f"{name:<{width}}  {age(each.age_s):>8}  {size(each.size_bytes):>7}  "
        + (f"stays: {shown(each.stays)}" if each.stays else verb)
        for name, each in zip(names, chosen, strict=True)
    ]
    return [*lines, *([f"{young} younger ones stay"] if young else [])]


def age(seconds: float) -> str:
    """`45 days`, `5 h`, `20 min`."""
    for unit_s, unit in ((DAY_S, "days"), (3600.0, "h")):
        if seconds >= 2 * unit_s:
            return f"{seconds // unit_s:.0f} {unit}"
    return f"{max(0.0, seconds) // 60:.0f} min"


def size(count: float) -> str:
    """`512 B`, `1.2 MB`."""
    power = next((power for power in range(4) if count < 1000 ** (power + 1)), 4)
    number = count / 1000**power
    return f"{number:.{0 if power == 0 or number >= 100 else 1}f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def shown(text: str) -> str:
    """For a terminal: a folder's name may hold anything."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def show(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"  {line}")


def agreed(*, yes: bool, dry_run: bool) -> bool:
    """Whether what was shown may go. Nobody is asked where nobody sits."""
    if dry_run or yes:
        return not dry_run
    if not sys.stdin.isatty():
        print("nothing was removed (--yes removes what is shown)")
        return False
    try:
        return input("remove all that goes? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def told(wrong: Sequence[str]) -> int:
    """Say why something is left. Returns the exit code."""
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    return int(bool(wrong))
