"""Which runs may be compared: named fields of a run, a hash of them, and in which of them two runs differ.

docs/history.md lists the fields. Driver, image, commit and host are not among them: they are what explains a change.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from platforms.results.gates import part, trained_on
from reporting.history import node_facts

ASKED = ("benchmark", "variant", "configuration", "size", "mode", "layout", "workload_version", "values")
"""What people decide: the test, the platform's file, the suite's code."""
MEASURED = ("device", "devices", "memory_gib", "mig", "dtype", "cpu_quota", "data_from")
"""What the job found. `dtype` is one of these, because `auto` chooses it by the device."""

VALUES = "values"
"""Of a test whose id is a position: its values, as `local-1x1cpu case=('n': 100)` (harness/numbered.py)."""

_MIG = re.compile(r"\s+MIG\s+(\S+)$")  # as torch names such a device: "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
_REQUEST_FIELDS = ("variant", "configuration", "size", "mode", "dtype")
_LESS_THAN = {"fp32": ("bf16", "tf32"), "tf32": ("bf16",)}  # the worst first
_UNKNOWN = (None, "", "unknown")
# `json.dumps` would make an encoder for each run.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def fields_of(run_json: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a run.json (docs/wire.md). What the run does not tell has no field.

    What varies from night to night on a healthy machine is rounded away, so that it begins no new series:

    - the vendor's word, which a newer driver writes before the device's name, and blanks in that name;
    - what driver or kernel keep of a memory (`rounded_gib`);
    - a CPU quota beyond hundredths of a core;
    - devices and cores of the node that the job does not use.
    """
    start = part(run_json, "start")
    request = {**part(part(run_json, "asked"), "request"), **part(start, "request")}
    device = part(start, "device")
    seen = node_facts.Devices() if device.get("name") else node_facts.devices_of(run_json)
    name = " ".join(str(device.get("name") or seen.name or "").split())
    mig = _MIG.search(name)
    found: dict[str, Any] = {
        "benchmark": run_json.get("benchmark"),
        "layout": run_json.get("layout"),
        "workload_version": start.get("workload_version"),
        "device": _MIG.sub("", name).removeprefix("NVIDIA "),
        "devices": _devices(run_json) or seen.number,
        "memory_gib": rounded_gib(device.get("memory_bytes", seen.memory_bytes)),
        "mig": mig[1] if mig else seen.mig,
        "cpu_quota": _quota(part(start, "host").get("cpu_quota", seen.cpu_quota)),
        "data_from": part(run_json, "summary").get("data_from"),
        VALUES: part(run_json, "asked").get(VALUES),
    }
    for field in _REQUEST_FIELDS:
        found[field] = request.get(field)
    less = [one for one in _LESS_THAN.get(str(found["dtype"]), ()) if one in part(device, "multiplied_in").values()]
    if less:
        found["dtype"] = f"{found['dtype']}, multiplied in {less[0]}"
    return {field: found[field] for field in (*ASKED, *MEASURED) if found[field] not in _UNKNOWN}


def comparability(fields: Mapping[str, Any]) -> str:
    """Twelve characters that are the same for runs with the same fields. A missing field equals only a missing field.

    The hash stands in years of history: another algorithm would end every series. Values follow it in a hash of their
    own, as in `1a45a4dabf61-9c2e44d0`, so that a series goes on that began before they were recorded.
    """
    plain = {field: value for field, value in fields.items() if field != VALUES}
    name = hashlib.sha256(_ENCODER.encode(plain).encode()).hexdigest()[:12]
    if VALUES not in fields:
        return name
    return f"{name}-{hashlib.sha256(str(fields[VALUES]).encode(errors='backslashreplace')).hexdigest()[:8]}"


def asked(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that people decide. Fields that are not ours, such as an imported program's, are theirs too."""
    return {field: value for field, value in fields.items() if field not in MEASURED}


def measured(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the job found."""
    return {field: value for field, value in fields.items() if field in MEASURED}


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """In which fields two runs differ, each in a sentence: `data came from storage, is mixed`, `2 devices, were 4`."""
    sentences = []
    for field in dict.fromkeys((*ASKED, *MEASURED, *before, *now)):
        old = before.get(field)
        new = now.get(field)
        if old != new:
            sentence = _SENTENCES.get(field, _plain(field))
            missing = "none" if field == "mig" else "not known"
            sentences.append(sentence(_text(old, missing), _text(new, missing)))
    return sentences


def rounded_gib(size_bytes: object) -> float | None:
    """The nominal size of a memory in GiB, from the size that driver or kernel report. None: not known.

    They keep some per cent for themselves, and another version of them keeps more or less. So the size is rounded up
    to the next eighth of a power of two: 79.2 and 79.4 GiB are 80, a node's 251 are 256, and a MIG slice's 9.6 are 10.
    """
    if not isinstance(size_bytes, int | float) or size_bytes <= 0:
        return None
    gib = size_bytes / 2**30
    step = 2.0 ** (math.floor(math.log2(gib)) - 3)
    return math.ceil(gib / step) * step


# --- fields ----------------------------------------------------------------------------------------------------------


def _devices(run_json: Mapping[str, Any]) -> int | None:
    """The devices of all nodes that the job uses: sockets on CPUs; elsewhere those that its ranks drive."""
    start = part(run_json, "start")
    world = part(start, "world")
    if part(start, "device").get("type") == "cpu":
        nodes = world.get("hosts") or world.get("nodes")
        sockets = part(start, "device").get("count")
        if isinstance(nodes, int) and isinstance(sockets, int):
            return nodes * sockets
        return None
    trained = trained_on(start)
    if trained is not None:
        return math.prod(trained)
    ranks = world.get("size")
    asked = part(run_json, "asked")  # of a program that does not say it; older files lack the two last keys
    ranks_per_device, devices_per_replica, replicas_per_rank = (
        asked.get(key) or 1 for key in ("ranks_per_device", "devices_per_replica", "replicas_per_rank")
    )
    return ranks * replicas_per_rank * devices_per_replica // ranks_per_device if isinstance(ranks, int) else None


def _quota(cores: object) -> object:
    return round(cores, 2) if isinstance(cores, float) else cores


# --- sentences -------------------------------------------------------------------------------------------------------


def _plain(name: str) -> Callable[[str, str], str]:
    return lambda old, new: f"{name.replace('_', ' ')} is {new}, was {old}"


_SENTENCES: Mapping[str, Callable[[str, str], str]] = {
    "data_from": lambda old, new: f"data came from {old}, is {new}",
    "devices": lambda old, new: f"{new} devices, were {old}",
    "memory_gib": lambda old, new: f"memory of a device is {new} GiB, was {old} GiB",
    "mig": lambda old, new: f"MIG profile is {new}, was {old}",
    "cpu_quota": lambda old, new: f"CPU quota is {new}, was {old}",
}


def _text(value: object, missing: str) -> str:
    if value is None:
        return missing
    return f"{value:g}" if isinstance(value, float) else str(value)
