"""Slurm's maintenance reservations: which of them keep every node of a platform from its jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from platforms.config.schema import Platform
from platforms.job import AwayError
from platforms.schedulers import Maintenance, backend_of
from platforms.schedulers.slurm import maintenance
from platforms.transports import CommandResult
from tests.clusters.slurm import Cluster

# As Slurm 22.05 and 24.11 print them.
RESERVATION = (
    "ReservationName={name} StartTime={begin} EndTime={end} Duration=10:00:00 Nodes={nodes} NodeCnt=3 CoreCnt=12 "
    "Features=(null) PartitionName=(null) Flags={flags} TRES=cpu=12 Users=root Groups=(null) Accounts=(null) "
    "Licenses=(null) State=ACTIVE BurstBuffer=(null) Watts=n/a MaxStartDelay=(null)"
)
PARTITIONS = """\
PartitionName=standard AllowGroups=ALL Default=YES QoS=N/A Hidden=NO Nodes=cn[1-3] State=UP TotalCPUs=12 TotalNodes=3
PartitionName=gpu AllowGroups=ALL Default=NO QoS=N/A Hidden=YES Nodes=v100n[1-2] State=UP TotalCPUs=8 TotalNodes=2
PartitionName=empty AllowGroups=ALL Default=NO QoS=N/A Hidden=NO Nodes=(null) State=UP TotalCPUs=0 TotalNodes=0
"""
BEGIN_S = 1795420800.0  # 2026-11-23T08:00:00 UTC
END_S = 1795456800.0


def reservation(nodes: str, flags: str = "MAINT,IGNORE_JOBS,SPEC_NODES", name: str = "upgrade", day: int = 23) -> str:
    begin = f"2026-11-{day}T08:00:00"
    return RESERVATION.format(name=name, begin=begin, end=f"2026-11-{day}T18:00:00", nodes=nodes, flags=flags)


class Answering:
    """A login node on which each command prints this."""

    where = "login"

    def __init__(self, output: str, exit_code: int = 0) -> None:
        self._result = CommandResult(exit_code, output.encode(), b"no controller" if exit_code else b"")

    def run(self, argv: list[str], *, input: bytes = b"", timeout_s: float = 60.0) -> CommandResult:  # noqa: A002
        return self._result


def platform(**slurm: str) -> Platform:
    return Platform(
        name="cluster", scheduler="slurm", device="cpu", work_dir="/w", layouts={"default": ("1x1",)}, slurm=slurm
    )


def asked(output: str, **slurm: str) -> Maintenance | None:
    return maintenance.ask(Answering(output), platform(**slurm))


def test_a_maintenance_of_every_node_of_the_partition_is_found() -> None:
    expected = Maintenance("upgrade", BEGIN_S, END_S)
    assert asked(f"{reservation('cn[1-3],v100n1')}\n{PARTITIONS}") == expected
    assert asked(f"{reservation('v100n[1-2]')}\n{PARTITIONS}", partition="gpu") == expected
    assert asked(f"{reservation('cn[1-3],v100n[1-2]')}\n{PARTITIONS}", partition="standard,gpu") == expected


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        ("No reservations in the system", {}),
        (reservation("cn[1-2]"), {}),  # cn3 takes jobs
        (reservation("cn[1-3]", flags="SPEC_NODES"), {}),  # a course
        (reservation("cn[1-3]"), {"partition": "gpu"}),
        (reservation("cn[1-3]"), {"partition": "standard,gpu"}),
        (reservation("cn[1-3]"), {"partition": "empty"}),
        (reservation("cn[1-3]"), {"partition": "unknown"}),
        (reservation("cn[1-3]"), {"reservation": "upgrade"}),  # the platform's jobs ask for this very reservation
        (reservation("(null)"), {}),
    ],
)
def test_everything_else_keeps_no_job_from_starting(line: str, keys: dict[str, str]) -> None:
    assert asked(f"{line}\n{PARTITIONS}", **keys) is None


def test_of_several_maintenances_the_first_counts() -> None:
    lines = [reservation("cn[1-3]", name="later", day=25), reservation("cn[1-3]", name="sooner", day=23)]
    found = asked("\n".join([*lines, PARTITIONS]))
    assert found is not None
    assert found.name == "sooner"


def test_a_controller_that_does_not_answer_is_away() -> None:
    with pytest.raises(AwayError, match="login: Slurm's reservations cannot be asked for: no controller"):
        maintenance.ask(Answering("", exit_code=1), platform())


# --- a real Slurm ----------------------------------------------------------------------------------------------------


@pytest.fixture
def reserved(slurm: Cluster) -> Iterator[Cluster]:
    """The nodes of the partition `teaching` and one of `standard` are under maintenance, those of `gpu` tomorrow."""
    begun = ("StartTime=now", "Duration=60", "Users=root", "Flags=MAINT,IGNORE_JOBS")
    tomorrow = ("StartTime=now+1days", "Duration=60", "Users=root", "Flags=MAINT")
    slurm.ask("scontrol", "create", "reservation", "ReservationName=m_begun", "Nodes=cn1,mi210n1", *begun)
    slurm.ask("scontrol", "create", "reservation", "ReservationName=m_tomorrow", "Nodes=v100n[1-2]", *tomorrow)
    try:
        yield slurm
    finally:
        for name in ("m_begun", "m_tomorrow"):
            slurm.ask("scontrol", "delete", f"ReservationName={name}")


@pytest.mark.real_slurm
def test_a_real_slurm_tells_its_maintenance(reserved: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in reserved.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")  # of a person's environment: must not reach our question
    now_s = time.time()

    def maintenance_of(partition: str) -> Maintenance | None:
        asked_for = platform(partition=partition)
        return backend_of(asked_for).maintenance(asked_for)

    begun = maintenance_of("gpu-mi210")
    assert begun is not None
    assert begun.name == "m_begun"
    assert begun.begins_s <= now_s < begun.ends_s
    tomorrow = maintenance_of("gpu")
    assert tomorrow is not None
    assert 23 * 3600 < tomorrow.begins_s - now_s < 25 * 3600  # not measured: parsed
    assert maintenance_of("standard") is None  # cn2 and cn3 take jobs
