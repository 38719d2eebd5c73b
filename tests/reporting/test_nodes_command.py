"""`python -m reporting nodes`: the nodes of a platform, and the answer for a user whose job was slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.config.schema import Platform
from platforms.job import ONLY, RefusedError
from platforms.schedulers import SCHEDULERS, Backend, NodeState
from reporting.__main__ import main
from reporting.fleet.sentences import minute
from reporting.history import reader
from reporting.history.writer import HistoryWriter
from tests.reporting.fleet_history import fleet_nights, visit

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site with 12 nodes that were visited in two nights; n07 is 8 % slow, n03 was slow in the last run."""
    folder = tmp_path / "centre"
    writer = HistoryWriter(folder / "history")
    for envelope in [*fleet_nights(2, slow={"n07": 0.08}), visit(2, "n03", 94.0)]:
        writer.write(envelope, None)
    return folder


def nodes(site: Path, *words: str) -> int:
    return main(["nodes", "eidf_a100", f"--site={site}", *words])


def test_the_table_shows_slow_nodes_first_and_says_by_which_numbers(site: Path, capsys: Capture) -> None:
    assert nodes(site) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "eidf_a100: each node beside the other nodes; negative is slower"
    assert lines[1].split() == ["node", "runs", "deviation", "error", "last", "run", "suspicions", "verdict"]
    assert lines[3].split() == ["n07", "2", "-8.0", "%", "0.6", "%", "2026-10-03", "2", "slow"]
    assert lines[4].split()[:2] == ["n03", "3"]
    assert lines[4].endswith("suspect")
    assert len(lines) == 3 + 12 + 2
    assert lines[-2] == "n03 -6.0 % in 1 run (limit 3.0 %): suspect"
    assert lines[-1] == "n07 -8.0 % in 2 runs (limit 3.0 %): -7.1 % and -8.9 %"


@pytest.mark.parametrize(
    ("asked", "code", "sentence"),
    [
        (
            "n07,n08",
            1,
            "It may be the machine: n07 -8.0 % in 2 runs (limit 3.0 %): -7.1 % and -8.9 %; tell your centre.",
        ),
        ("n[03-04]", 0, "It may be the machine, and one more run decides: n03 -6.0 % in 1 run (limit 3.0 %): suspect."),
        ("n08", 0, "It is not the machine, as far as our runs say: n08 -0.2 % on 2026-10-03."),
        (
            "n08,n99",
            0,
            "It is not the machine, as far as our runs say: n08 -0.2 % on 2026-10-03; "
            "not known: n99 was never measured.",
        ),
        ("n99", 0, "Nothing is known of the machine: n99 was never measured."),
    ],
)
def test_is_it_me_or_the_machine(site: Path, capsys: Capture, asked: str, code: int, sentence: str) -> None:
    assert nodes(site, "--nodes", asked) == code
    assert capsys.readouterr().out.splitlines()[0] == sentence


def test_the_runs_of_a_users_nodes_are_shown_with_their_limits(site: Path, capsys: Capture) -> None:
    nodes(site, "--nodes=n07")
    lines = capsys.readouterr().out.splitlines()
    (heading,) = [line for line in lines if line.startswith("node  started")]
    assert heading.split() == ["node", "started", "test", "value", "change", "limit", "beside", "night", "run"]
    (first, _last) = [line for line in lines if "each-" in line]
    started = visit(0, "n07", 1.0, hour=22.1).time_s
    assert first.split()[:3] == ["n07", *minute(started).split()]
    assert "-7.1 %  -3.0 %  11 other nodes of that night  2026-10-02  each-0" in first


class Asked(Backend):
    """A scheduler that knows three nodes and one job."""

    def nodes(self, platform: Platform) -> Sequence[NodeState]:
        return [NodeState(name, "idle") for name in ("n01", "n07", "n13")]

    def drain_command(self, node: str, reason: str) -> str | None:
        return f"drain {node} '{reason}'"

    def nodes_of_job(self, platform: Platform, job_id: str) -> tuple[str, ...]:
        if job_id != "4711":
            raise RefusedError(f"Slurm knows no job {job_id}")
        return ("n07", "n13")

    def start_of_job(self, platform: Platform, job_id: str) -> float | None:
        return visit(1, "n07", 1.0, hour=21).time_s


@pytest.fixture
def asked_scheduler(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site's platform has a scheduler that can be asked."""
    monkeypatch.setitem(SCHEDULERS, "asked", f"{__name__}:Asked")
    (site / "platforms").mkdir()
    (site / "platforms/eidf_a100.yaml").write_text(
        "scheduler: asked\ndevice: gpu\nlayouts: {default: [1x4]}\nreplaces: true\n"
    )


@pytest.mark.usefixtures("asked_scheduler")
def test_nodes_that_were_never_measured_come_from_the_scheduler(site: Path, capsys: Capture) -> None:
    assert nodes(site) == 1
    said = capsys.readouterr()
    assert "\nnever measured: n13\n" in said.out
    assert said.err == ""


@pytest.mark.usefixtures("asked_scheduler")
def test_a_slow_node_comes_with_the_command_that_drains_it(site: Path, capsys: Capture) -> None:
    assert nodes(site) == 1
    said = "To take it out of service until it is repaired:\n  drain n07 'slow: -8.0 %'\n"
    assert said in capsys.readouterr().out
    assert nodes(site, "--nodes=n07") == 1
    assert "drain" not in capsys.readouterr().out, "a user cannot drain it"


def test_the_nodes_of_an_earlier_night(site: Path, capsys: Capture) -> None:
    assert nodes(site, "--tonight=2026-10-02") == 0
    assert "2026-10-03" not in capsys.readouterr().out


@pytest.mark.usefixtures("asked_scheduler")
def test_of_an_earlier_night_the_scheduler_is_not_asked(site: Path, capsys: Capture) -> None:
    nodes(site, "--tonight=2026-10-02")
    said = capsys.readouterr()
    assert "n13" not in said.out, "the scheduler knows the nodes of today"
    assert said.err == ""


@pytest.mark.usefixtures("asked_scheduler")
def test_a_users_job_is_looked_up(site: Path, capsys: Capture) -> None:
    assert nodes(site, "--job=4711") == 1
    first, second = (minute(visit(night, "n07", 1.0, hour=22.1).time_s) for night in (0, 1))
    assert capsys.readouterr().out.splitlines()[0] == (
        f"It may be the machine: n07 -7.1 % (limit 3.0 %) at {first} and -8.9 % (limit 3.0 %) at {second}; "
        "tell your centre. Not known: n13."
    )
    assert nodes(site, "--job=4712") == 2
    assert "--job 4712: Slurm knows no job 4712 (--nodes names its nodes instead" in capsys.readouterr().err


def test_a_platform_of_the_history_alone_has_no_scheduler_to_ask(site: Path, capsys: Capture) -> None:
    """As one of ReFrame, `daint:gpu`."""
    runs = [replace(run, platform="daint:gpu") for run in reader.read(site / "history")]
    HistoryWriter(site / "imported").write_all(runs)
    assert main(["nodes", "daint:gpu", f"--site={site}", f"--history={site / 'imported'}"]) == 1
    said = capsys.readouterr()
    assert "n07" in said.out
    assert said.err == ""


def test_a_scheduler_that_cannot_be_asked_is_said_and_the_history_is_shown(site: Path, capsys: Capture) -> None:
    assert nodes(site) == 1
    said = capsys.readouterr()
    assert "n07" in said.out
    assert said.err.endswith("nodes without runs are not shown\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["eidf_a10"], "there is no platform 'eidf_a10' (did you mean 'eidf_a100'?)"),
        (["xyz"], "there is no platform 'xyz' (known: alps_clariden, "),
        (["eidf_a100", "--nodes=n07,,n08"], "--nodes: "),
        (["eidf_a100", "--nodes="], "--nodes: "),
        (["eidf_a100", "--job=17"], "--job 17: "),
        (["eidf_h100"], "none of them measured one node alone"),
    ],
)
def test_what_cannot_be_shown_is_refused(site: Path, capsys: Capture, words: list[str], message: str) -> None:
    assert main(["nodes", *words, f"--site={site}"]) == 2
    assert message in capsys.readouterr().err


def test_a_history_that_cannot_be_read_is_not_called_empty(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "history/2026-11/20261129T065952Z-df5f343d.jsonl"
    file.mkdir(parents=True)  # whoever runs this may read all files
    for command in (["nodes", "eidf_a100"], ["table"], ["trend"]):
        assert main([*command, f"--site={tmp_path}"]) == 2
        said = capsys.readouterr().err
        assert f"{file}: this file of the history cannot be read: Is a directory" in said
        assert "empty" not in said


def test_an_empty_history_says_so(tmp_path: Path, capsys: Capture) -> None:
    assert nodes(tmp_path) == 2
    assert "the history is empty" in capsys.readouterr().err


@pytest.mark.usefixtures("asked_scheduler")
def test_a_start_that_the_scheduler_has_forgotten_is_in_the_history(
    site: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Asked, "start_of_job", lambda *asked: None)
    monkeypatch.setattr(Asked, "nodes_of_job", lambda *asked: ("n07",))
    job = visit(1, "n07,n08", 200.0, layout="2x4gpu", trial=ONLY, hour=21, run_id="pair", attempt=7)
    HistoryWriter(site / "history").write(job, None)
    assert nodes(site, f"--job={job.key.job_id}") == 1
    first, second = (minute(visit(night, "n07", 1.0, hour=22.1).time_s) for night in (0, 1))
    said = capsys.readouterr().out.splitlines()[0]
    assert first in said
    assert second in said
