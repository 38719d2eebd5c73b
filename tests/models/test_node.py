"""`models node COMMAND…`: the command ends as if it ran alone, and its log says what the node is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from models import node, node_devices, node_network
from models.contention import ContentionWatch
from models.meter import Wire
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """This process has its own again after each test."""
    handlers = {name: signal.getsignal(getattr(signal, name)) for name in node.SIGNALS}
    yield
    for name, handler in handlers.items():
        signal.signal(getattr(signal, name), handler)


def parts(log: str) -> dict[str, Any]:
    """The facts in a log, by part."""
    lines = [json.loads(line.partition(" ")[2]) for line in log.splitlines() if line.startswith(":::MLLOG")]
    assert [line["metadata"]["seq"] for line in lines] == list(range(len(lines)))
    assert {line["key"] for line in lines} == {"hpcml_node"}
    return {line["value"]["part"]: line["value"]["facts"] for line in lines}


def test_facts_stand_around_what_the_command_prints(capfd: pytest.CaptureFixture[str]) -> None:
    assert node.main(["sh", "-c", "echo printed; exit 3"]) == 3
    log = capfd.readouterr().out
    before, _, after = log.partition("printed\n")
    found = parts(log)
    assert found["host"].keys() >= {"kernel", "cpu", "cores", "memory_bytes", "cpu_quota"}
    assert found["program"]["name"] == "sh"
    assert list(parts(before))[:1] == ["host"]
    assert '"part": "after"' in after
    assert found["after"]["contention"]["host"] == os.uname().nodename
    assert max(map(len, log.splitlines())) <= 3500


def test_a_row_that_the_command_left_open_ends_before_the_facts(capfd: pytest.CaptureFixture[str]) -> None:
    node.main(["printf", "rate: 100.0"])
    assert "\nrate: 100.0\n" in capfd.readouterr().out


def test_a_fact_that_cannot_be_read_costs_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def breaks(*_: object) -> None:
        raise ValueError

    for module, name in (
        (node_devices, "look"),
        (node_network, "network"),
        (node_network, "counters"),
        (node, "host_facts"),
        (ContentionWatch, "counted"),
    ):
        monkeypatch.setattr(module, name, breaks)
    assert node.main(["true"]) == 0
    assert parts(capfd.readouterr().out).keys() == {"software", "storage", "program"}


@pytest.mark.parametrize(
    ("place", "name"),
    [(node_network, "counters"), (ContentionWatch, "begin"), (ContentionWatch, "end"), (node, "folders_of")],
)
def test_a_look_that_fails_keeps_no_command_from_running(
    place: object, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def breaks(*_: object) -> None:
        raise ValueError

    monkeypatch.setattr(place, name, breaks)
    assert node.main(["sh", "-c", "echo printed; exit 3"]) == 3
    assert "printed\n" in capfd.readouterr().out


@pytest.mark.parametrize(("command", "status"), [("nosuch", 127), ("/", 126)])
def test_a_command_that_cannot_start_ends_as_in_a_shell(
    command: str, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert node.main([command]) == status
    assert capfd.readouterr().err.startswith(f"{command}: ")


def begin(*command: str) -> subprocess.Popen[str]:
    """As a scheduler does: in a process group of its own."""
    words = [sys.executable, "-m", "models", "node", *command]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.slow
def test_a_command_that_a_signal_ended_ends_us_by_the_same_one() -> None:
    process = begin("sh", "-c", "kill -9 $$")
    assert "after" in parts(process.communicate()[0])
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_signal_reaches_the_command_once_and_the_log_has_its_end(tmp_path: Path) -> None:
    handles = f"trap 'echo x >> {tmp_path}/signals; sleep 0.2; exit 7' TERM"
    process = begin("sh", "-c", f"{handles}; touch {tmp_path}/begun; while :; do sleep 0.05; done")
    until((tmp_path / "begun").exists)
    os.killpg(process.pid, signal.SIGTERM)
    log, _ = process.communicate()
    assert process.returncode == 7
    assert "after" in parts(log)
    assert (tmp_path / "signals").read_text() == "x\n"


@pytest.mark.parametrize("is_early", [False, True])
def test_the_first_process_of_a_container_hands_signals_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_early: bool
) -> None:
    """Also one that comes when the command has begun, and we do not know of it yet."""
    own = os.getpid()
    start = subprocess.Popen

    def send() -> None:
        until((tmp_path / "begun").exists)
        os.kill(own, signal.SIGUSR1)

    def started(*words: Any, **options: Any) -> Any:
        process = start(*words, **options)
        if is_early:
            send()
        else:
            threading.Thread(target=send).start()
        return process

    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(subprocess, "Popen", started)
    assert node._run(["sh", "-c", f"trap 'exit 9' USR1; touch {tmp_path}/begun; while :; do sleep 0.02; done"]) == 9


def test_an_edited_program_has_another_hash(tmp_path: Path) -> None:
    script = tmp_path / "bench.sh"
    script.write_text("echo 1")
    before = node.program(["sh", str(script)])
    assert node.program(["sh", str(script)]) == before
    script.write_text("echo 2")
    after = node.program(["sh", str(script)])
    assert (before["sha256"], before["libraries"]) == (after["sha256"], after["libraries"])
    assert before["files"].keys() == after["files"].keys() == {"bench.sh"}
    assert before["files"] != after["files"]


def test_the_program_of_a_shells_script_is_the_one_that_it_names() -> None:
    python = node.program(["python3", "-V"])
    assert node.program(["sh", "-ec", "python3 -V", "python3"]) == python
    assert node.program(["sh", "-ec", "python3 -V"])["name"] == "sh"
    assert node.program(["sh", "-ec", "exit", "no such program"])["name"] == "sh"


def test_what_is_too_large_has_no_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one file, and of many: a job must not wait while all its data are read."""
    monkeypatch.setattr(node, "HASHED_BYTES", 100)
    for name, size in (("large", 101), ("a", 60), ("b", 30), ("c", 20)):
        (tmp_path / name).write_bytes(b"x" * size)
    assert node.program(["sh", *(str(tmp_path / name) for name in ("large", "a", "b", "c"))])["files"].keys() == {
        "a",
        "b",
    }


def test_the_file_systems_of_the_folders_of_a_job(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    mounts = f"/dev/root / ext4 rw 0 0\nhome:/home {tmp_path} nfs4 rw 0 0\nmds:/fs {tmp_path}/data lustre rw 0 0\n"
    (tmp_path / "proc/self/mounts").write_text(mounts)
    folders = node.folders_of(["fio", f"--directory={tmp_path}/data", "--bs=1M"])
    found = node.storage(folders, str(tmp_path))
    assert found["data"] == "lustre"
    assert found["temporary"] == "ext4"


@pytest.mark.parametrize(
    ("environ", "all_of_it"),
    [
        ({}, True),
        ({"SLURM_JOB_ID": "7"}, False),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "4294967291", "SLURM_STEP_TASKS_PER_NODE": "1"}, False),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}, True),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}, False),
    ],
)
def test_others_work_is_known_where_all_of_the_job_is_ours(environ: dict[str, str], all_of_it: bool) -> None:
    assert node.sees_all_of_job(environ) is all_of_it


def test_others_on_the_cores_of_the_job_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = ContentionWatch()
    watch.begin()
    watch.end()
    counted = watch.counted(threads=1, of_node=True)
    assert counted is not None
    cores = sorted(counted["cores"][1])
    busy = {**counted, "elapsed_s": 100.0, "used_s": 1.0, "busy_s": dict.fromkeys(cores, 99.0), "host": "n07"}
    monkeypatch.setattr(watch, "counted", lambda **_: busy)
    monkeypatch.setattr(node, "sees_all_of_job", lambda _: True)
    (warning,) = node.facts_after(watch, 100.0, on_cpu=True)["after"]["warnings"]
    assert warning.startswith(f"not alone: others used {0.99 * len(cores) - 0.01:.1f} of the {len(cores)} core(s)")


@pytest.mark.parametrize(("of_node", "looks"), [(True, 2), (False, 0)])
def test_one_rank_of_a_node_writes_what_its_cards_counted_meanwhile(
    of_node: bool, looks: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    readings = iter(
        [{"mlx5_0/1 port_xmit_wait": 7, "eth0 rx_errors": 1}, {"mlx5_0/1 port_xmit_wait": 9, "eth0 rx_errors": 1}]
    )
    monkeypatch.setattr(node_network, "counters", lambda: next(readings))
    watch = node.NodeWatch(of_node)
    watch.begin()
    watch.end()
    watch.write_network(Wire(0))
    found = parts(capfd.readouterr().out) if of_node else {}
    assert len(list(readings)) == 2 - looks
    if of_node:
        assert found["network_after"] == {"list": ["mlx5_0/1 port_xmit_wait 2"]}
        assert found["network_counted"]["counters"] == 2
