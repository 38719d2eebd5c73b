"""Is this node fit? `vet limits FILE` compares it with what an administrator has signed; `vet job` with its siblings.

`vet limits` is for a prolog: local facts only, no torch. It ends with UNFIT if a fact that it could read is not what
was signed, and with 0 otherwise, its own mistakes included: Slurm takes a node out of service whose prolog fails, and
one mistake would take all of them. slurm_templates/prolog.sh runs it, ends it in time, and turns UNFIT into 1. A Python
that cannot start ends with 1 by itself, so 1 says nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import syslog
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence

from models import host, node, node_devices, node_network

UNFIT = 97  # the exit code, which neither a shell nor Python has for anything else
TOLERANCES = {"memory GiB": 0.02, "clock cap MHz": 0.02}  # what a kernel keeps of the memory differs between versions
LINKS = re.compile(r"links of ([\d.]+) Gbit/s")
FILE_SYSTEM = re.compile(r"file system of (/.*)")
UP = ("up", "ACTIVE", None)
COMING_UP = ("INIT", "ARMED")  # of InfiniBand, until the subnet manager has seen the port


def main(arguments: Sequence[str]) -> int:
    if list(arguments[:1]) == ["limits"] and len(arguments) == 2:
        return by_limits(arguments[1])
    print("usage: vet limits FILE, or vet job [--unfit FILE] [--known NAMES]", file=sys.stderr)
    return 2


def by_limits(path: str, environ: Mapping[str, str] = os.environ, root: str = "/") -> int:
    """Compare this node with the limits in a file, and write one line to syslog and to the standard output.

    root: where /proc and /sys are looked for. Returns UNFIT or 0.
    """
    name = environ.get("NODE_NAME") or node.node_name(environ)  # a pod has a name of its own
    verdict = Verdict([], [])
    try:
        verdict = compared(limits_of(path, name), environ, root)
        said = f"{name} is unfit: {', '.join(verdict.unfit)}" if verdict.unfit else f"{name} is as signed"
        if verdict.unknown:
            said += f"; not known: {', '.join(verdict.unknown)}"
    except Exception as error:  # not a reason to take a node out of service
        said = f"{name} is not vetted: {type(error).__name__}: {error}"
    with contextlib.suppress(OSError):
        syslog.openlog("hpc-ml-bench-vet")
        syslog.syslog(syslog.LOG_INFO if said.endswith("is as signed") else syslog.LOG_WARNING, said)
    with contextlib.suppress(OSError):
        os.write(1, f"{said}\n".encode())  # not by print: what cannot be flushed at the end changes the exit code
    return UNFIT if verdict.unfit else 0


def limits_of(path: str, name: str) -> Mapping[str, Any]:
    """Return what was signed of a node. Raises an exception where there is nothing, or nothing that root has signed.

    What root owns and nobody else can write was put there by an administrator. Nothing else counts.
    """
    path = os.path.realpath(path)
    for place in (os.path.dirname(path), path):
        status = os.stat(place)
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            raise PermissionError(f"others than root can write {place}: chown root {place}; chmod go-w {place}")
    with open(path, encoding="utf-8") as file:
        nodes = json.load(file)["nodes"]
    limits = next((nodes[each] for each in (name, name.partition(".")[0], "*") if each in nodes), None)
    if not isinstance(limits, dict):
        raise LookupError(f"{path} has no limits of {name}")
    return limits


class Verdict(NamedTuple):
    """What of a node is not as signed, and what could not be read; a clause each."""

    unfit: List[str]
    unknown: List[str]


def compared(limits: Mapping[str, Any], environ: Mapping[str, str] = os.environ, root: str = "/") -> Verdict:
    """Compare this node with its limits: numbers are at least as signed, texts the same."""
    verdict = Verdict([], [])
    for name, signed in limits.items():
        try:
            found = fact(name, environ, root)
        except Exception:
            found = None
        if found is None or isinstance(found, str) != isinstance(signed, str):
            verdict.unknown.append(name)
            continue
        fits = found == signed if isinstance(signed, str) else found >= signed * (1 - TOLERANCES.get(name, 0))
        if not fits:
            shown = found if isinstance(found, str) else f"{found:.6g}"
            verdict.unfit.append(f"{name} {shown}, signed {signed}")
    return verdict


def fact(name: str, environ: Mapping[str, str], root: str) -> Any:
    """Return what this node is in a limit's words; None, or any exception, where that cannot be known."""
    links, file_system = LINKS.fullmatch(name), FILE_SYSTEM.fullmatch(name)
    path = environ.get("PATH", os.defpath)
    if name == "memory GiB":
        memory = host.main_memory_bytes(root)
        return memory / 2**30 if memory else None
    if name == "cores":
        return host.node_cores(root) if host.read_text(root, "proc/cpuinfo") else None
    if name == "clock cap MHz":
        return host.health(root)["clock_cap_mhz"]
    if "KUBERNETES_SERVICE_HOST" in environ:  # a pod sees its own devices, ports and mounts, not the node's
        return None
    if name == "devices":
        return node_devices.count(path)
    if name == "GPU power limit W":  # CUDA_VISIBLE_DEVICES is the job's in a prolog, so the tool is asked without it
        gpus: List[Any] = node_devices.look({"PATH": path}).devices
        return min(gpu["power_limit_w"] for gpu in gpus)
    if links:
        return _links(float(links[1]), root)
    if file_system:
        with contextlib.suppress(FileNotFoundError):
            os.stat(file_system[1])  # where a link in the path cannot be followed, nothing is known
        kind = node.storage({"it": file_system[1]}, root)["it"]
        return None if kind == "autofs" else kind  # it is mounted on first use
    return None


def _links(rate: float, root: str) -> Optional[int]:
    """Return how many links are up with at least a rate in Gbit/s, whichever: an update may give cards other names."""
    cards = node_network.network(root)
    if not cards or any(card.get("state") in COMING_UP for card in cards):
        return None
    rates: List[Any] = [card.get("rate_gbit_s") for card in cards if card.get("state") in UP]
    return sum(each is not None and each >= rate for each in rates)
