"""What each node of a platform is by its last runs, as limits that an administrator signs; models/vet.py reads them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from platforms.results.gates import number, part
from reporting.phrases import counted, listed

LOOKS = 5  # at a node: its last runs. The best of them counts, since a job may see less than there is
UP = ("up", "ACTIVE")
NODES_SHOWN = 8

Facts = Mapping[str, Any]  # of a node, by part (docs/wire.md, hpcml_node)
Limits = dict[str, float | str]


def limits_of(looks: Sequence[Facts], work_dir: str | None) -> Limits:
    """What a node must be, in words that models/vet.py knows: numbers are the least, texts the same.

    Args:
        looks: at this node.
        work_dir: the folder whose file system must be mounted there; None if none is known.
    """
    numbers: dict[str, float] = {}
    for name, value in itertools.chain.from_iterable(map(_numbers, looks)):
        if value:
            numbers[name] = max(int(value) if value == int(value) else value, numbers.get(name, 0))
    limits: Limits = {**numbers}
    kinds = {part(look, "storage").get("work") for look in looks} - {None, "overlay"}  # overlay: a container's own
    if work_dir is not None and len(kinds) == 1:
        limits[f"file system of {work_dir}"] = str(kinds.pop())
    return limits


def _numbers(look: Facts) -> Iterator[tuple[str, float | None]]:
    host = part(look, "host")
    memory = number(host.get("main_memory_bytes")) or number(host.get("memory_bytes")) or 0
    yield "memory GiB", round(memory / 2**30, 3)
    yield "cores", number(host.get("node_cores"))
    yield "devices", len({device.get("pci_bus_id") for device in part(look, "devices").get("list") or ()} - {None})
    cards = [card for card in part(look, "network").get("list") or () if card.get("state") in UP]
    rates = [rate for card in cards if (rate := number(card.get("rate_gbit_s")))]
    for rate in rates:
        yield f"links of {rate:g} Gbit/s", sum(each >= rate for each in rates)


def told(limits: Mapping[str, Limits]) -> list[str]:
    """The nodes with about equal limits in a line each, the most first; then what to do where some differ."""
    groups: dict[str, list[str]] = {}
    for node, of_node in limits.items():
        values = {name: value if isinstance(value, str) else f"{value:.3g}" for name, value in of_node.items()}
        groups.setdefault(", ".join(f"{name} {value}" for name, value in values.items()), []).append(node)
    largest_first = sorted(groups.items(), key=lambda group: -len(group[1]))
    lines = [f"{counted(len(nodes), 'node')}: {text} ({listed(nodes, NODES_SHOWN)})" for text, nodes in largest_first]
    if len(groups) > 1:
        lines.append("They differ: one that has lost something would pass by these limits. Repair it before you sign.")
    return lines
