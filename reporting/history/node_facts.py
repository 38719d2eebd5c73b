"""What the nodes of a job say of themselves (docs/wire.md, hpcml_node): of any command, as far as it was read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from platforms.results.gates import part

# Names of provenance, and where their values stand: a part of a node's facts, and the key there.
OF_NODE: Mapping[str, tuple[str, str]] = {
    "kernel": ("host", "kernel"),
    "cpu": ("host", "cpu"),
    "cores": ("host", "cores"),
    "numa_nodes": ("host", "numa_nodes"),
    "governor": ("host", "governor"),
    "clock_max_mhz": ("host", "clock_max_mhz"),
    "clock_cap_mhz": ("host", "clock_cap_mhz"),
    "huge_pages": ("host", "huge_pages"),
    "transparent_huge_pages": ("host", "transparent_huge_pages"),
    "work_file_system": ("storage", "work"),
    "data_file_system": ("storage", "data"),
    "program": ("program", "sha256"),
    "libraries": ("program", "libraries"),
}
OF_DEVICES: Mapping[str, str] = {
    "device": "name",
    "driver": "driver",
    "power_limit_w": "power_limit_w",
    "device_clock_max_mhz": "clock_max_mhz",
}
OF_NETWORK: Mapping[str, str] = {"network": "rate_gbit_s", "network_firmware": "firmware"}


class Devices(NamedTuple):
    """What a job's nodes offer it to compute on. None: not known.

    Attributes:
        number: on all nodes together.
        memory_bytes: of one device, or of a node without devices.
        cpu_quota: in cores; "max": none is set.
    """

    name: str | None = None
    number: int | None = None
    memory_bytes: int | None = None
    mig: str | None = None
    cpu_quota: float | str | None = None


def provenance_of(run_json: Mapping[str, Any]) -> dict[str, str]:
    """What may explain a change, as short texts under flat names; of nodes that differ all values."""
    found: dict[str, dict[str, None]] = {}

    def add(name: str, value: object) -> None:
        if value not in (None, "", {}, []):
            found.setdefault(name, {})[f"{value:.6g}" if isinstance(value, float) else str(value)] = None

    for parts in _nodes(run_json):
        for name, (of_part, key) in OF_NODE.items():
            add(name, part(parts, of_part).get(key))
        for name, value in part(parts, "software").items():
            add(name, value)
        for file, digest in part(part(parts, "program"), "files").items():
            add(f"file {file}", digest)
        for names, of_part in ((OF_DEVICES, "devices"), (OF_NETWORK, "network")):
            for each in part(parts, of_part).get("list") or ():
                for name, key in names.items():
                    add(name, each.get(key))
    places = [part(parts, "place") for parts in _nodes(run_json)]
    if all(places) and len(places) >= len(run_json.get("nodes") or ()):  # or it lay over more than is known
        for place in places:
            for level, name in place.items():
                add(level, name)
    return {name: ", ".join(sorted(values)) for name, values in found.items()}


def network_of(run_json: Mapping[str, Any]) -> dict[str, Any]:
    """What the nodes' network cards counted, as an envelope has it; {} where no node read them twice.

    Of each counter the node and port where it counted most, and how much it counted at most on the other nodes.
    """
    seconds: list[float] = []
    counts: dict[str, dict[str, tuple[int, str]]] = {}  # by counter and node: of the port where it is highest
    for node, parts in part(run_json, "node_facts").items():
        look = part(parts, "network_counted")
        if not look.get("elapsed_s"):
            continue
        seconds.append(look["elapsed_s"])
        for text in part(parts, "network_after").get("list") or ():
            found = re.fullmatch(r"(\S+) (\w+) (\d+)", str(text))
            if found:
                of_node = counts.setdefault(found[2], {})
                of_node[node] = max(of_node.get(node, (0, "")), (int(found[3]), found[1]))
    most = {}
    for counter, of_node in counts.items():
        worst = max(of_node, key=lambda node: of_node[node])
        highest, port = of_node.pop(worst)
        most[counter] = [worst, port, highest, max((other for other, _ in of_node.values()), default=0)]
    return {"elapsed_s": max(seconds), "nodes": len(seconds), "most": most} if seconds else {}


def throttled(run_json: Mapping[str, Any]) -> list[str]:
    """Why GPUs were slower than they could be, after the command."""
    found: list[str] = []
    for parts in _nodes(run_json):
        for each in part(parts, "health_after").get("list") or ():
            found += each.get("throttled") or ()
    return found


def devices_of(run_json: Mapping[str, Any]) -> Devices:
    """What a job could compute on: its GPUs, or on CPUs its processors. Nodes that differ make no one device."""
    on_cpu = str(run_json.get("layout") or "").endswith("cpu")
    nodes = [_devices_on(parts, on_cpu) for parts in _nodes(run_json)]
    if not nodes or len({each._replace(number=None) for each in nodes}) > 1:
        return Devices()
    numbers = [each.number for each in nodes if each.number is not None]
    return nodes[0]._replace(number=sum(numbers) or None)


def _devices_on(parts: Mapping[str, Any], on_cpu: bool) -> Devices:
    host = part(parts, "host")
    quota = host.get("cpu_quota")
    if on_cpu:
        return Devices(host.get("cpu"), host.get("sockets"), host.get("memory_bytes"), None, quota)
    devices = part(parts, "devices").get("list") or [{}]
    first = devices[0]
    same = all((each.get("name"), each.get("mig")) == (first.get("name"), first.get("mig")) for each in devices)
    if not first or not same:
        return Devices(cpu_quota=quota)
    return Devices(first.get("name"), len(devices), first.get("memory_bytes"), first.get("mig"), quota)


def _nodes(run_json: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The facts of each node, by part."""
    facts = part(run_json, "node_facts")
    for node in facts:
        yield part(facts, node)
