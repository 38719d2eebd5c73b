"""What Slurm's nodes are to a platform's jobs: which of them it may use, and why one takes no job. Asks nothing."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from platforms.config import sbatch_options
from platforms.schedulers import NodeState
from platforms.schedulers.slurm.render import GRES
from platforms.schedulers.slurm.rows import NodeRow, expand_nodes
from platforms.schedulers.slurm.states import node_state

if TYPE_CHECKING:
    from platforms.config.schema import Platform


def state_of(row: NodeRow) -> NodeState:
    """The node with its state in our words, and Slurm's reason."""
    return NodeState(row.name, node_state(row.state), _reason(row))


def why_out_of_service(names: Collection[str], rows: Mapping[str, NodeRow]) -> str:
    """Why a job that needs all of these nodes cannot start until a person acts, and what to type. "" if it can."""
    out = []
    for name in names:
        if name not in rows:
            out.append(f"Slurm has no node {name} any more")
            continue
        node = state_of(rows[name])
        if node.out_of_service:
            out.append(f"node {name} is {rows[name].state}" + (f": {node.reason}" if node.reason else ""))
    if not out:
        return ""
    there = ",".join(name for name in names if name in rows and state_of(rows[name]).out_of_service)
    resume = f", or return it with: scontrol update nodename={there} state=resume" if there else ""
    return f"{'; '.join(out)} (choose another node: sinfo --Node{resume})"


def nodes_of_platform(rows: Mapping[str, NodeRow], platform: Platform) -> list[NodeState]:
    """The nodes that the platform's jobs can get: by partition, constraint, devices, and the site's own --exclude."""
    directives = platform.slurm.directives
    partitions = sbatch_options.last_value("--partition", directives) or platform.slurm.partition
    constraint = sbatch_options.last_value("--constraint", directives) or platform.slurm.constraint
    excluded = expand_nodes(sbatch_options.last_value("--exclude", directives) or "")
    device = None if platform.unit == "cpu" else platform.slurm.gres or GRES[platform.unit]
    found = []
    for row in rows.values():
        in_partition = row.default if partitions is None else bool(row.partitions & set(partitions.split(",")))
        has_device = device is None or any(f"{gres}:".startswith(f"{device}:") for gres in row.gres)
        if in_partition and has_device and row.name not in excluded and _has_features(row, constraint):
            found.append(state_of(row))
    return found


def drain_command(node: str, reason: str) -> str:
    """What an administrator types to take a node out of service."""
    return f"scontrol update nodename={node} state=drain reason={shlex.quote(reason)}"


def _reason(row: NodeRow) -> str:
    """As in `'bad DIMM', by root since 2026-11-23 01:32`, in this machine's time."""
    if not row.reason:
        return ""
    by = f", by {row.reason_by}" if row.reason_by else ""
    since = ""
    if row.reason_s is not None:
        since = f" since {time.strftime('%Y-%m-%d %H:%M', time.localtime(row.reason_s))}"
        since = since if by else f",{since}"
    return f"'{row.reason}'{by}{since}"


def _has_features(row: NodeRow, constraint: str | None) -> bool:
    """Whether a node fits an expression of --constraint, as in `a100&nvlink`, `v100|a100`, `[rack1|rack2]`, `a100*2`.

    Parentheses do not group here, so that a node may seem to fit `(a|b)&c` that does not.
    """
    if constraint is None:
        return True
    flat = re.sub(r"[\[\]()]|\*\d+", "", constraint)
    return any(_all_of(alternative, row) for alternative in flat.split("|"))


def _all_of(alternative: str, row: NodeRow) -> bool:
    words: Sequence[str] = re.split("[&,]", alternative)
    return {word.strip() for word in words} <= row.features
