"""Is this node fit? `vet limits FILE` compares it with what an administrator has signed; `vet job` with its siblings.

`vet limits` is for a prolog: local facts only, no torch. It ends with UNFIT if a fact that it could read is not what
was signed, and with 0 otherwise, its own mistakes included: Slurm takes a node out of service whose prolog fails, and
one mistake would take all of them. slurm_templates/prolog.sh runs it, ends it in time, and turns UNFIT into 1. A Python
that cannot start ends with 1 by itself, so 1 says nothing.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import sys
import syslog
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from models import host, node, node_devices, node_network

UNFIT = 97  # the exit code, which neither a shell nor Python has for anything else
TOLERANCE = 0.02  # what a kernel keeps of the memory differs between versions
UP = ("up", "ACTIVE")
GIB = 2.0**30


def main(arguments: Sequence[str]) -> int:
    if list(arguments[:1]) == ["limits"] and len(arguments) == 2:
        return by_limits(arguments[1])
    if list(arguments[:1]) == ["job"]:
        from models import vet_job  # imported late: a prolog needs nothing of it

        return vet_job.main(arguments[1:])
    print("usage: vet limits FILE, or vet job [--unfit FILE] [--known NAMES]", file=sys.stderr)
    return 2


def by_limits(path: str, environ: Mapping[str, str] = os.environ, root: str = "/") -> int:
    """Compare this node with the limits in a file, and write one line to syslog and to the standard output.

    root: where /proc and /sys are looked for. Returns UNFIT or 0.
    """
    name = node.node_name(environ)
    unfit: Sequence[str] = ()
    try:
        verdict = compared(limits_of(path, name), environ, root)
        unfit = verdict.unfit
        said = f"{name} is unfit: {', '.join(unfit)}" if unfit else f"{name} is as signed"
        if verdict.unknown:
            said += f"; not known: {', '.join(verdict.unknown)}"
    except Exception as error:  # not a reason to take a node out of service
        said = f"{name} is not vetted: {error if isinstance(error, Unusable) else repr(error)}"
    _say(said, syslog.LOG_INFO if said.endswith("is as signed") else syslog.LOG_WARNING)
    return UNFIT if unfit else 0


def _say(text: str, priority: int) -> None:
    try:
        syslog.openlog("hpc-ml-bench-vet")
        syslog.syslog(priority, text)
    except OSError:
        pass
    try:
        os.write(1, f"{text}\n".encode())  # not by print: what cannot be flushed at the end changes the exit code
    except OSError:
        pass


# --- what was signed --------------------------------------------------------------------------------------------------


class Unusable(Exception):
    """The file of limits cannot be used; the text says why."""


def limits_of(path: str, name: str) -> Mapping[str, Any]:
    """Return what was signed of a node. Raises Unusable.

    What root owns and nobody else can write was put there by an administrator. Nothing else counts.
    """
    path = os.path.realpath(path)
    for place in (os.path.dirname(path), path):
        try:
            status = os.stat(place)
        except OSError as error:
            raise Unusable(f"{place}: {error.strerror}") from None
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            raise Unusable(f"{place} can be written by others than root: chown root {place}; chmod go-w {place}")
    try:
        with open(path, encoding="utf-8") as file:
            nodes = json.load(file)["nodes"]
        limits = nodes.get(name, nodes.get(name.partition(".")[0]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unusable(f"{path} cannot be read: {error!r}") from None
    if not isinstance(limits, dict):
        raise Unusable(f"{path} has no limits of {name}")
    return limits


class Verdict(NamedTuple):
    """What of a node is not as signed, and what could not be read; a clause each."""

    unfit: List[str]
    unknown: List[str]


class Check(NamedTuple):
    """One limit. `found` is None where the fact cannot be read; `fits` is asked of what was found."""

    what: str
    signed: object
    found: object
    fits: bool


def compared(limits: Mapping[str, Any], environ: Mapping[str, str] = os.environ, root: str = "/") -> Verdict:
    """Compare this node with its limits. A limit that is not there forbids nothing."""
    verdict = Verdict([], [])
    for check in _checks(limits, environ, root):
        if check.found is None:
            verdict.unknown.append(check.what)
        elif not check.fits:
            verdict.unfit.append(f"{check.what} {check.found}, signed {check.signed}")
    return verdict


def _checks(limits: Mapping[str, Any], environ: Mapping[str, str], root: str) -> Iterator[Check]:
    yield from _host_checks(limits, root)
    if "KUBERNETES_SERVICE_HOST" in environ:  # a pod sees its own devices, cards and mounts, not the node's
        return
    if "devices" in limits:
        yield from _device_checks(limits["devices"], environ)
    cards = {str(card["name"]): card for card in _tried(lambda: node_network.network(root)) or []}
    for name, signed in limits.get("links", {}).items():
        rate = _rate(cards.get(name), name, root)
        yield Check(f"link {name} Gbit/s", signed, rate, rate is not None and rate >= signed)
    for folder, signed in limits.get("storage", {}).items():
        kind = (_tried(functools.partial(node.storage, {"it": folder}, root)) or {}).get("it")
        kind = None if kind == "autofs" else kind  # mounted on first use
        yield Check(f"file system of {folder}", signed, kind, kind == signed)


def _host_checks(limits: Mapping[str, Any], root: str) -> Iterator[Check]:
    """Memory, cores, the cap of the clock: at least as signed. The kernel: the same."""
    readers: Dict[str, Tuple[str, float, float, Callable[[], Any]]] = {
        "memory_bytes": ("memory GiB", GIB, TOLERANCE, lambda: host.main_memory_bytes(root)),
        "cores": ("cores", 1, 0, lambda: host.node_cores(root) if host.read_text(root, "proc/cpuinfo") else None),
        "clock_cap_mhz": ("cap of the clock MHz", 1, TOLERANCE, lambda: host.health(root)["clock_cap_mhz"]),
    }
    for key, (what, unit, tolerance, read) in readers.items():
        if key in limits:
            found = _tried(read)
            least = limits[key] * (1 - tolerance)
            shown = None if found is None else f"{found / unit:.6g}"
            yield Check(what, f"{limits[key] / unit:.6g}", shown, found is not None and found >= least)
    if "kernel" in limits:
        yield Check("kernel", limits["kernel"], platform.release(), platform.release() == limits["kernel"])


def _device_checks(signed: Mapping[str, Any], environ: Mapping[str, str]) -> Iterator[Check]:
    """How many whole devices the vendor's tool shows, and the least memory of one. A tool that fails shows none.

    In a prolog CUDA_VISIBLE_DEVICES and its like are the job's, so the tool is asked without them.
    """
    devices = _tried(lambda: node_devices.look({"PATH": environ.get("PATH", os.defpath)}).devices) or []
    number = len({device.get("pci_bus_id", place) for place, device in enumerate(devices)}) or None
    yield Check("devices", signed["number"], number, number is not None and number >= signed["number"])
    memories = [device["memory_bytes"] for device in devices if "memory_bytes" in device]
    if signed.get("memory_bytes") and memories:
        fits = min(memories) >= signed["memory_bytes"] * (1 - TOLERANCE)
        shown = f"{min(memories) / GIB:.4g}"
        yield Check("memory of a device GiB", f"{signed['memory_bytes'] / GIB:.4g}", shown, fits)


def _rate(card: Optional[Mapping[str, Any]], name: str, root: str) -> Optional[float]:
    """Return the rate of a link in Gbit/s, 0 where it is down, None where nothing is known of it.

    A card that has another name since an update of the kernel is not known, and not lost.
    """
    if card is None:
        is_down = host.read_text(root, f"sys/class/net/{name}/operstate").strip() == "down"
        return 0.0 if is_down and re.fullmatch(r"[\w.-]+", name) else None
    if card.get("state") not in (*UP, None):
        return 0.0
    rate: Optional[float] = card.get("rate_gbit_s")
    return rate


def _tried(read: Callable[[], Any]) -> Any:
    """Return what is read; None where that fails."""
    try:
        return read()
    except Exception:
        return None
