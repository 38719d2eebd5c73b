"""A user's own command is run with a look at its nodes, on every scheduler, and what they say reaches run.json."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import pytest

from platforms.config.keys import ContainerKeys, KubernetesKeys
from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, Run
from platforms.results import gates, log_reader
from platforms.rundir import code_archive, job_json
from platforms.schedulers import node_facts, script
from platforms.schedulers.kubernetes.manifest import launch, placeholders
from platforms.schedulers.slurm import render

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = Path("/runs/archives/models-0123456789ab.pyz")
THERE = "/work/me/archives/models-0123456789ab.pyz"
SPEC = JobSpec(
    "stream-1x1cpu-k2345abc", "test_stream.py::test_stream[x]", "x", Layout(1, 1, "cpu"), ("./stream", "-n", "8"),
    node_facts=ARCHIVE,
)  # fmt: skip


def platform(scheduler: str, **keys: object) -> Platform:
    known = {"name": "x", "scheduler": scheduler, "device": "cpu", "layouts": {"default": ("1x1",)}}
    return Platform(**{**known, "source": Path("x.yaml"), **keys})


def before(archive: object) -> str:
    return f"sh -c '{node_facts.IF_THERE}' {archive} python3"


def line(node: str, part: str, facts: dict[str, object], seq: int = 0) -> bytes:
    metadata = {"file": "node.py", "lineno": 0, "rank": 0, "seq": seq}
    value = {"node": node, "part": part, "facts": facts}
    content = {"namespace": "hpcml", "key": "hpcml_node", "value": value, "metadata": metadata}
    return b":::MLLOG " + json.dumps(content).encode() + b"\n"


LOG = (
    line("n1", "host", {"kernel": "6.1"})
    + b"bandwidth: 12\n"
    + line("n2", "host", {"kernel": "6.1"})
    + line(
        "n1", "after", {"warnings": ["not alone: others used 1.0 on n1"], "contention": {"neighbours_cores": 1.0}}, 1
    )
    + line(
        "n2", "after", {"warnings": ["not alone: others used 0.5 on n2"], "contention": {"neighbours_cores": 0.5}}, 1
    )
)


def test_the_nodes_of_a_program_that_says_nothing_itself_are_known() -> None:
    run = log_reader.parse(LOG, SPEC)
    assert run.nodes["n2"]["host"] == {"kernel": "6.1"}
    assert run.problems == ()
    assert run.warnings == ("not alone: others used 1.0 on n1 (and on 1 more nodes)",)
    assert gates.is_load_known(run)
    content = json.loads(json_of(run))
    assert job_json.run_from(content).nodes == run.nodes


def json_of(run: Run) -> str:
    return job_json.as_json(job_json.run_content(run, SPEC, "7", None, None))


def test_a_node_of_which_nothing_is_known_leaves_the_load_unknown() -> None:
    assert not gates.is_load_known(log_reader.parse(LOG + line("n3", "host", {}), SPEC))


def test_lines_of_nodes_are_not_numbered_with_those_of_ranks() -> None:
    assert not log_reader.parse(LOG.replace(b"12\n", b"12"), SPEC).problems
    assert "hpcml_end" in str(log_reader.parse(LOG.replace(b'"file": "node.py"', b'"file": "meter.py"'), SPEC).problems)


def test_a_line_that_stands_there_twice_and_a_container_that_started_again_count_once() -> None:
    gpu = {"name": "A100"}
    lines = line("n1", "host", {"kernel": "6.1"}, 0) + line("n1", "devices", {"list": [gpu] * 8}, 1)
    lines += line("n1", "devices", {"list": [gpu] * 2}, 2)
    assert log_reader.parse(lines + lines).nodes["n1"]["devices"] == {"list": [gpu] * 10}


# --- the words before the command ------------------------------------------------------------------------------------


def test_local_and_ssh_run_the_archive_that_lies_on_the_machine() -> None:
    assert last_line(script.render(SPEC, platform("local"))) == f"exec {before(ARCHIVE)} ./stream -n 8"
    far = script.render(SPEC, platform("ssh", host="far", work_dir="/work/me"), "/work/me")
    assert last_line(far) == f"exec {before(THERE)} ./stream -n 8"


def last_line(text: str) -> str:
    return " ".join(text.replace("\\\n", " ").splitlines()[-1].split())


@pytest.mark.parametrize(
    ("changes", "command"),
    [
        ({}, "FACTS ./stream"),
        ({"launcher": "torchrun"}, "srun * FACTS sh -c *torch.distributed.run*"),  # one on each node
        ({"launcher": "srun"}, "srun * FACTS sh -c *"),
        ({"container": ContainerKeys(runtime="apptainer", image="x.sif")}, "apptainer * FACTS ./stream"),
    ],
)
def test_on_slurm_it_runs_on_each_node_and_in_the_container(changes: dict[str, object], command: str) -> None:
    launcher = str(changes.get("launcher", "none"))
    keys = {name: value for name, value in changes.items() if name != "launcher"}
    launched = " ".join(render.launch(replace(SPEC, launcher=launcher), platform("slurm", work_dir="/work/me", **keys)))
    words, _, rest = launched.partition(before(THERE))
    assert fnmatch(words + "FACTS" + rest, f"{command}*"), launched


def test_a_pod_starts_although_the_archive_is_not_there() -> None:
    pods = platform("kubernetes", kubernetes=KubernetesKeys(image="i:1"))
    command = launch.command(SPEC, pods)
    assert command[3:] == ["/hpc-ml-bench/code/models-0123456789ab.pyz", "python3", "./stream", "-n", "8"]
    (volume,) = [each for each in placeholders.volumes(SPEC, pods) if each["name"] == "code"]
    assert volume["configMap"]["optional"] is True
    done = subprocess.run([*command[:3], "/nosuch", "python3", "echo", "printed"], capture_output=True, check=True)
    assert done.stdout == b"printed\n"


# --- the archive as a script of the shell -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return code_archive.build(ROOT / "models", tmp_path_factory.mktemp("archives")).path


def ran(archive: Path, *command: str, **environ: str) -> subprocess.CompletedProcess[bytes]:
    environ = {"PATH": "/usr/bin:/bin", **environ}
    return subprocess.run(["sh", str(archive), *command], capture_output=True, check=False, env=environ)


@pytest.mark.slow
def test_a_python_reads_the_facts_and_the_command_ends_as_it_does(archive: Path) -> None:
    done = ran(archive, sys.executable, "sh", "-c", "echo printed; exit 5")
    assert done.returncode == 5
    (facts,) = log_reader.parse(done.stdout, SPEC).nodes.values()
    assert facts.keys() >= {"host", "program", "after"}


@pytest.mark.parametrize("python", ["nosuch", "false"])
def test_without_a_python_the_shell_says_what_it_can(archive: Path, python: str) -> None:
    done = ran(archive, python, "sh", "-c", "echo printed; exit 5", SLURM_NODEID="3")
    assert done.returncode == 5
    run = log_reader.parse(done.stdout, SPEC)
    (facts,) = run.nodes.values()
    assert facts["host"]["read_by"] == "sh"
    assert facts["host"]["kernel"]
    assert not gates.is_load_known(run)


def test_further_ranks_of_a_node_run_as_they_are(archive: Path) -> None:
    assert ran(archive, "nosuch", "echo", "printed", SLURM_LOCALID="1").stdout == b"printed\n"


def test_a_command_that_is_not_there_ends_as_in_a_shell(archive: Path) -> None:
    assert ran(archive, "nosuch", "nothing").returncode == 127
