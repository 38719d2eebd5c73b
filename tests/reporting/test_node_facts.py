"""What nodes say of themselves explains a change, tells devices apart, and ends no series that goes on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from platforms.job import Metric, Outcome
from reporting.compare.causes import causes_of
from reporting.gate.judge import judge
from reporting.gate.verdict import Kind
from reporting.history import one_device, reader
from reporting.history.comparability import asked, comparability, fields_of
from reporting.history.envelope import Envelope, Revision
from reporting.history.nights import NOON
from reporting.history.run_facts import envelope_of
from reporting.history.writer import HistoryWriter
from reporting.references.answers import References
from tests.reporting.run_json import gpu_run

DAY_S = 86_400.0
HOST = {"kernel": "6.1.0", "cpu": "AMD EPYC 7742", "cores": 64, "sockets": 2, "memory_bytes": 2**38, "cpu_quota": "max"}
A100 = {"name": "NVIDIA A100-SXM4-80GB", "driver": "550.54", "memory_bytes": 84987740160, "power_limit_w": 400.0}


def foreign(night: int = 0, gpu: dict[str, Any] | None = A100, nodes: int = 1, **parts: Any) -> dict[str, Any]:
    """The run.json of an all-reduce that knows nothing of its machine. gpu: of its nodes; None: no tool said it."""
    devices = {} if gpu is None else {"devices": {"list": [gpu] * 4}}
    facts = {"host": HOST, **devices, **parts}
    return gpu_run(
        test="test_nccl.py::test_all_reduce[a100-1x4gpu]",
        benchmark=None,
        start={},
        summary={},
        windows=[],
        started_s=1795385573.2 + night * DAY_S,
        effective_throughput=None,
        metrics={"bandwidth": {"value": 360.0 + night % 3, "unit": "GB/s", "better": "higher"}},
        asked={"arguments": ["all_reduce_perf", "-b", "8G"]},
        node_facts={f"n{number}": facts for number in range(nodes)} if parts.get("known", True) else {},
    )


def envelope(run: dict[str, Any], night: int = 0) -> Envelope:
    return envelope_of(
        run, site="centre", run_id=f"night-{night}", attempt=1, outcome=Outcome.PASSED, sane=True,
        revision=Revision.TEST_ENDED, written_s=run["started_s"] + 60,
    )  # fmt: skip


def old(night: int = 0) -> Envelope:
    """From before the facts of nodes were recorded."""
    return envelope(foreign(night) | {"node_facts": {}}, night)


def changed(before: dict[str, Any], after: dict[str, Any]) -> str:
    return causes_of([envelope(before)], [envelope(after)], metric="bandwidth").provenance()


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (foreign(gpu={**A100, "driver": "580.65"}), "changed: driver 550.54 -> 580.65"),
        (foreign(program={"sha256": "a1", "files": {"app.py": "2222"}}), "changed: file app.py 1111 -> 2222"),
        (foreign(storage={"work": "lustre"}), "changed: work_file_system not recorded -> lustre"),
    ],
)
def test_a_driver_an_edited_program_and_a_file_system_are_named(after: dict[str, Any], said: str) -> None:
    before = foreign(program={"sha256": "a1", "files": {"app.py": "1111"}}) if "app.py" in said else foreign()
    assert said in changed(before, after)


def test_of_nodes_that_differ_all_values_are_provenance() -> None:
    run = foreign(nodes=2)
    run["node_facts"]["n1"] = {"host": {**HOST, "kernel": "5.14"}}
    assert envelope(run).provenance["kernel"] == "5.14, 6.1.0"


def test_the_devices_of_any_command_are_told_apart() -> None:
    fields = fields_of(foreign(nodes=2))
    assert fields == {
        "layout": "1x4gpu", "device": "A100-SXM4-80GB", "devices": 8, "memory_gib": 80.0, "cpu_quota": "max",
    }  # fmt: skip
    assert fields_of(foreign() | {"layout": "1x1cpu"})["device"] == "AMD EPYC 7742"
    mixed = foreign(nodes=2)
    mixed["node_facts"]["n1"] = {"host": HOST, "devices": {"list": [{**A100, "name": "H100"}]}}
    assert "device" not in fields_of(mixed)


def test_a_series_goes_on_when_its_device_is_recorded_from_now_on() -> None:
    """Under its older name, which answers have."""
    runs = [*(old(night) for night in range(10)), *(envelope(foreign(night), night) for night in range(10, 20))]
    names = {run.comparability for run in one_device.joined(runs)}
    assert names == {comparability(asked(runs[0].fields))} == {runs[0].comparability}
    current = envelope(foreign(20), 20)
    verdict = judge(current, runs, References(), NOON, options="")["bandwidth"]
    assert verdict.kind is Kind.OK


def test_a_night_on_which_the_tool_has_failed_belongs_to_the_only_device() -> None:
    runs = [envelope(foreign(night), night) for night in range(3)] + [envelope(foreign(3, gpu=None), 3)]
    assert {run.comparability for run in one_device.joined(runs)} == {runs[0].comparability}


def test_runs_that_share_their_fields_are_joined_as_those_that_do_not() -> None:
    gpus = (A100, None, {**A100, "name": "NVIDIA H100 80GB HBM3"})
    for kinds in (1, 2, 3):
        runs = [old(0), *(envelope(foreign(night, gpu=gpus[night % kinds]), night) for night in range(1, 9))]
        fields = {str(run.fields): run.fields for run in runs}
        shared = [dataclasses.replace(run, fields=fields[str(run.fields)]) for run in runs]
        assert one_device.joined(shared) == one_device.joined(runs)


@pytest.mark.parametrize("fails", [True, False])
def test_a_job_whose_node_said_nothing_does_not_rename_the_series(fails: bool) -> None:
    """An accepted level has the name: without it the series would be red again beside its first pin."""
    silent = old(3)
    if fails:  # its node was lost before it could say anything
        silent = dataclasses.replace(silent, sane=False, outcome=Outcome.ERROR, metrics={})
    runs = [*(envelope(foreign(night), night) for night in range(3)), silent]
    names = {run.comparability for run in one_device.joined(runs[::-1]) if run.sane}
    assert names == {runs[0].comparability}


@pytest.mark.parametrize("first_has_facts", [True, False])
@pytest.mark.parametrize("visited", [A100, {**A100, "name": "NVIDIA H100 80GB HBM3"}, None])
def test_visits_tell_the_gate_which_devices_a_test_has_had_although_none_is_read(
    first_has_facts: bool, visited: dict[str, Any] | None, tmp_path: Path
) -> None:
    history = HistoryWriter(tmp_path)
    history.write(envelope(foreign()) if first_has_facts else old(), None)
    history.write(envelope(foreign(1), 1), None)
    for node in ("n1", "n2", "n3"):
        run = foreign(2, gpu=visited) | {"trial": {"role": "visit", "node": node}, "nodes": [node]}
        history.write(envelope(run, 2), None)
    names = [run.comparability for run in reader.read(tmp_path, visits=False)]
    assert names == [run.comparability for run in reader.read(tmp_path)][:2]


def test_two_devices_are_two_series_and_the_second_one_says_what_it_has_left() -> None:
    runs = [*(old(night) for night in range(10)), *(envelope(foreign(night), night) for night in range(10, 40))]
    current = envelope(foreign(40, gpu={**A100, "name": "NVIDIA H100 80GB HBM3"}), 40)
    verdict = judge(current, runs, References(), NOON, options="")["bandwidth"]
    assert verdict.red
    assert "device is H100 80GB HBM3, was A100-SXM4-80GB" in verdict.text


def test_runs_of_our_own_benchmarks_and_imported_ones_are_left_alone() -> None:
    own = envelope(gpu_run())
    fields = {"layout": "1x4gpu"}
    imported = dataclasses.replace(old(), comparability=comparability(fields), fields=fields)
    assert one_device.joined([own, imported]) == [own, imported]
    assert Metric(360.0, "GB/s") == imported.metrics["bandwidth"]


def test_a_benchmark_of_ours_has_the_fields_that_it_says_itself() -> None:
    """Or series of years would end."""
    run = gpu_run()
    del run["start"]["device"]["memory_bytes"]
    assert fields_of(run | {"node_facts": {"n0": {"host": HOST, "devices": {"list": [A100]}}}}) == fields_of(run)
