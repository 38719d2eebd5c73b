"""`slurm: {vet: true}`: a job's nodes are compared before its ranks start, and it begins elsewhere if one is unfit."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from platforms.config.keys import ContainerKeys
from platforms.job import JobSpec, Layout, Outcome, State, Status
from platforms.results.log_reader import parse
from platforms.rundir.session_history import FIRST
from platforms.runner.retries import next_attempt
from platforms.schedulers.slurm import judge, render
from platforms.schedulers.slurm.judge import PolledJob
from platforms.schedulers.slurm.rows import VET_STEP, ExitFile
from tests.platforms.test_slurm import ALONE, SPEC, account, checked, cluster, programs, row, run_script

VET = {"slurm": {"vet": True}}
OWN = replace(ALONE, node_facts=Path("models-0123.pyz"))
REFUSED = "unfit:cn_2:matrix_products_55_GFLOP/s_(usual_110),_memory_8_GiB;cn3:memory_128_GiB"


def step(spec: JobSpec, **keys: Any) -> list[str]:
    return render.vet_step(spec, cluster(**{**VET, **keys}))


def test_without_the_key_and_without_an_archive_nothing_is_compared() -> None:
    assert render.vet_step(SPEC, cluster()) == []
    assert step(ALONE) == []
    assert "unfit" not in render.render(SPEC, cluster())


def test_one_process_on_each_node_looks_before_the_ranks() -> None:
    text = checked(render.render(SPEC, cluster(**VET))).replace("\\\n    ", "")
    vet, ranks = (line for line in text.splitlines() if line.startswith("srun "))
    words = shlex.split(vet)
    assert words[:3] == ["srun", "--kill-on-bad-exit=1", "--nodes=2"]
    assert "--ntasks=2" in words
    assert "--ntasks-per-node=1" in words
    assert words[words.index("vet") - 1] == "/work/me/archives/models-0123.pyz"
    assert words[words.index("--unfit") + 1] == f"/work/me/jobs/{SPEC.name}/unfit"
    assert "train" in ranks
    assert text.index("vet job") < text.index(ranks)


def test_variables_of_the_platforms_file_are_meant_to_be_set() -> None:
    words = step(replace(SPEC, threads_per_rank=4), env={"NCCL_DEBUG": "INFO"})
    known = shlex.split(words[words.index("--known") + 1])[0].split(",")
    assert {"OMP_NUM_THREADS", "NCCL_DEBUG"} <= set(known)


@pytest.mark.parametrize("runtime", ["apptainer", "podman-hpc", "pyxis", "edf"])
def test_nodes_are_compared_in_the_container_that_has_torch(runtime: str) -> None:
    words = step(SPEC, container=ContainerKeys(runtime=runtime, image="IMAGE"))
    inside = words.index("sh")
    assert any("IMAGE" in word for word in words[:inside])


SRUN = r"""
while :; do case $1 in -*) shift ;; *) break ;; esac; done
exec "$@"
"""
LOOK = r"""
for word; do [ "${last:-}" != --unfit ] || file=$word; last=$word; done
case " $* " in
*" vet job "*) [ -z "%s" ] || printf %%s '%s' > "$file"; echo looked; exit %s ;;
*" train "*) echo trained ;;
esac
"""


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unfit: str = "", code: int = 0) -> tuple[int, str, str]:
    programs(tmp_path / "bin", srun=SRUN, python3=LOOK % (unfit, unfit, code))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    spec = replace(SPEC, python=str(tmp_path / "bin" / "python3"), layout=Layout(1, 1, "gpu"))
    return run_script(tmp_path, spec, **VET)


def test_the_ranks_start_on_nodes_that_are_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said, word = run(tmp_path, monkeypatch)
    assert (code, said.index("looked") < said.index("trained"), "refused=\n" in word) == (0, True, True)


def test_the_ranks_start_where_the_look_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said, word = run(tmp_path, monkeypatch, code=139)
    assert (code, "trained" in said, "refused=\n" in word) == (0, True, True)
    assert "is not vetted (exit code 139)" in said


def test_the_ranks_do_not_start_on_an_unfit_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said, word = run(tmp_path, monkeypatch, REFUSED.removeprefix("unfit:"))
    assert (code, "trained" in said) == (78, False)
    assert f"refused={REFUSED}\n" in word


def vetted() -> Status:
    exit_file = ExitFile(78, 31.0, 0, refused=REFUSED, nodes="cn[1-3]")
    return judge.judge(PolledJob(row("FAILED"), account("FAILED", 78), started=True, exit_file=exit_file))


def test_a_job_on_an_unfit_node_is_an_error_with_its_drain_lines() -> None:
    status = vetted()
    assert (status.state, status.state.outcome, status.exit_code) == (State.NODE_LOST, Outcome.ERROR, 78)
    assert status.failed_nodes == ("cn_2", "cn3")
    said, drains = status.reason.split(". To take it out of service, an administrator types: ")
    assert said == "unfit: cn_2: matrix products 55 GFLOP/s (usual 110), memory 8 GiB; cn3: memory 128 GiB"
    assert drains.split("; ") == [
        "scontrol update nodename=cn_2 state=drain reason='unfit: matrix products 55 GFLOP/s (usual 110)'",
        "scontrol update nodename=cn3 state=drain reason='unfit: memory 128 GiB'",
    ]


def test_it_begins_again_elsewhere_and_the_next_job_says_why() -> None:
    job: Any = SimpleNamespace(attempt=FIRST, platform=cluster(retries=1), spec=SPEC)
    attempt = next_attempt(job, vetted())
    assert attempt is not None
    assert attempt.avoid == ("cn_2", "cn3")
    assert attempt.earlier[0].startswith("attempt 1 ended as node lost on cn_2, cn3, unfit: cn_2: matrix products 55")


def test_what_is_wrong_without_a_culprit_is_a_warning_of_the_run() -> None:
    facts = {"product_gflop_s": [98.7], "warnings": ["slow link: n2 and n5 exchange 0.2 GB/s"]}
    metadata = {"file": "node.py", "lineno": 0, "rank": 0, "seq": 10**9}
    value = {"node": "n2", "part": "vet", "facts": facts}
    line = {"namespace": "hpcml", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": "hpcml_node"}
    run = parse(f":::MLLOG {json.dumps({**line, 'value': value, 'metadata': metadata})}\nmine\n", OWN)
    assert run.warnings == ("vet: slow link: n2 and n5 exchange 0.2 GB/s",)
    assert run.nodes["n2"]["vet"]["product_gflop_s"] == [98.7]
    assert run.problems == ()


@pytest.mark.parametrize("state", ["FAILED", "OUT_OF_MEMORY"])
def test_however_the_look_ends_the_job_is_judged_by_its_own_step(state: str) -> None:
    steps = [row(state, id="7.0", name=VET_STEP, exit_code=1), row("COMPLETED", id="7.1")]
    rows = account("COMPLETED", 0, 0, *steps)
    job = PolledJob(row("COMPLETED"), rows, started=True, exit_file=ExitFile(0, 31.0, 0, nodes="cn[1-3]"))
    assert judge.judge(job).state is State.SUCCEEDED


def test_a_step_sees_all_devices_of_its_node_where_slurm_gives_them_to_tasks() -> None:
    words = step(SPEC, slurm={"vet": True, "gpus": "gpus-per-task"})
    assert f"--gpus-per-task={SPEC.layout.devices_per_node}" in words
