"""What each node of a platform is by its last runs, as limits that an administrator signs; models/vet.py reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from platforms.results.gates import number, part
from reporting.phrases import counted, listed

LOOKS = 5  # at a node: its last runs. The best of them counts, since a job may see less than there is
UP = ("up", "ACTIVE")
NODES_SHOWN = 8
GIB = 2**30

Facts = Mapping[str, Any]  # of a node, by part (docs/wire.md, hpcml_node)
Limits = dict[str, Any]


def limits_of(looks: Sequence[Facts], work_dir: str | None, also: Sequence[str] = ()) -> Limits:
    """What a node must be at least.

    Args:
        looks: at this node, the last one first.
        work_dir: the folder whose file system must be mounted there; None if none is known.
        also: `clock_cap_mhz`, `kernel`: what a site changes on purpose, and so signs only where it asks for it.
    """
    hosts = [part(look, "host") for look in looks]
    caps = [host.get("clock_cap_mhz") for host in hosts]
    found: Limits = {
        "memory_bytes": _highest([host.get("main_memory_bytes") or host.get("memory_bytes") for host in hosts]),
        "cores": _highest([host.get("node_cores") for host in hosts]),
        "clock_cap_mhz": _highest(caps) if "clock_cap_mhz" in also else None,
        "kernel": hosts[0].get("kernel") if "kernel" in also else None,
        "devices": _devices(looks),
        "links": _links(looks),
        "storage": _storage(looks, work_dir),
    }
    return {name: value for name, value in found.items() if value}


def _highest(values: Sequence[object]) -> float | None:
    return max((known for known in map(number, values) if known is not None), default=None)


def _devices(looks: Sequence[Facts]) -> Limits:
    """The most whole devices that a job has seen, and the least memory of one. MIG devices tell no memory."""
    seen: list[Mapping[str, Any]] = max((list(_listed(look, "devices")) for look in looks), key=len, default=[])
    number_of_them = len({device.get("pci_bus_id", place) for place, device in enumerate(seen)})
    memories = [known for known in (number(device.get("memory_bytes")) for device in seen) if known]
    return {"number": number_of_them, "memory_bytes": min(memories, default=None)} if seen else {}


def _links(looks: Sequence[Facts]) -> dict[str, float]:
    """The highest rate of each card and port that was up, in Gbit/s."""
    rates: dict[str, float] = {}
    for look in looks:
        for card in _listed(look, "network"):
            rate = number(card.get("rate_gbit_s"))
            if rate and card.get("state") in UP:
                name = str(card.get("name"))
                rates[name] = max(rate, rates.get(name, 0.0))
    return rates


def _storage(looks: Sequence[Facts], work_dir: str | None) -> dict[str, str]:
    """The file system of work_dir. Where jobs have seen several, as in containers, none is signed."""
    kinds = {part(look, "storage").get("work") for look in looks} - {None, "overlay"}
    return {work_dir: str(kinds.pop())} if work_dir is not None and len(kinds) == 1 else {}


def _listed(look: Facts, name: str) -> Sequence[Mapping[str, Any]]:
    return [each for each in part(look, name).get("list") or () if isinstance(each, Mapping)]


def told(limits: Mapping[str, Limits]) -> list[str]:
    """The nodes with equal limits in a line each, the most first; then what to do where some differ."""
    groups: dict[str, list[str]] = {}
    for node, of_node in limits.items():
        groups.setdefault(_sentence(of_node), []).append(node)
    largest_first = sorted(groups.items(), key=lambda group: -len(group[1]))
    lines = [f"{counted(len(nodes), 'node')}: {text} ({listed(nodes, NODES_SHOWN)})" for text, nodes in largest_first]
    if len(groups) > 1:
        lines.append("They differ: one that has lost something would pass by these limits. Repair it before you sign.")
    return lines


def _sentence(limits: Limits) -> str:
    words: Mapping[str, Callable[[Any], str]] = {
        "memory_bytes": lambda value: f"memory {value / GIB:.6g} GiB",
        "cores": lambda value: f"{value:g} cores",
        "clock_cap_mhz": lambda value: f"clock up to {value:g} MHz",
        "kernel": lambda value: f"kernel {value}",
        "devices": lambda value: counted(value["number"], "device"),
        "links": lambda value: ", ".join(f"{name} {rate:g} Gbit/s" for name, rate in value.items()),
        "storage": lambda value: ", ".join(f"{folder} on {kind}" for folder, kind in value.items()),
    }
    return ", ".join(word(limits[name]) for name, word in words.items() if name in limits) or "nothing is known"
