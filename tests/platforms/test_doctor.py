"""`python -m platforms doctor`: a line a step, the first failure named with its cure, and nothing left behind."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from platforms.__main__ import main
from platforms.commands.doctor import node_checks, node_report
from platforms.config.schema import Platform
from platforms.job import RefusedError
from tests.clusters.slurm import Cluster
from tests.clusters.sshd import Sshd

COMPLETE = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in node_report.PACKAGES),
    reason="this Python lacks what a job needs",
)
BENCHMARKS = ("resnet50", "cosmoflow", "deepcam", "gpt")
SLURM = {"scheduler": "slurm", "device": "cpu", "layouts": "{default: [1x1]}", "poll_s": "0.5", "time_limit": "0:10:00"}
SLURM |= {"python": sys.executable, "slurm": "{account: z19, partition: standard}"}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "site" / "platforms").mkdir(parents=True)
    (tmp_path / "site" / "site.yaml").write_text("enabled: [it]\n")
    return tmp_path / "site"


def write(site: Path, keys: Mapping[str, str | None]) -> None:
    """The platform `it`, working in a folder beside the site's."""
    all_keys = {"work_dir": f"{site.parent}/work", **keys}
    text = "".join(f"{key}: {value}\n" for key, value in all_keys.items() if value is not None)
    (site / "platforms" / "it.yaml").write_text(text)


def data(site: Path, size: str = "quick") -> None:
    for benchmark in BENCHMARKS:
        (site.parent / "work" / "data" / f"{benchmark}-{size}").mkdir(parents=True)


def doctor(site: Path, *words: str) -> int:
    return main(["doctor", "it", "--site", str(site), "--runs-dir", f"{site.parent}/runs", *words])


def steps(printed: str) -> list[tuple[str, str]]:
    """(ok, failed or skipped; title) of every line."""
    return [(line.split()[0], line.split()[1]) for line in printed.splitlines() if not line.startswith("next:")]


# --- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"work_dir": "/work/${site.group}"}, "write `values: {group: …}` into "),
        ({"until": "2020-01-31"}, "`pytest -m it --dry-run` still shows its jobs. If the file is a copy for a"),
        ({"until": "2020-01-31", "work_dir": "/work/${site.group}"}, "this machine ended on 2020-01-31"),
    ],
)
def test_a_file_that_cannot_be_used_yet(
    keys: dict[str, str], message: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(site, {**SLURM, **keys})
    assert doctor(site) == 1
    printed = capsys.readouterr().out
    assert steps(printed) == [("failed", "file")]
    assert message in printed


def test_a_file_with_mistakes_names_them_all(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(site, {**SLURM, "layouts": "{default: [4]}", "colour": "red"})
    assert doctor(site) == 2
    error = capsys.readouterr().err
    assert "it.yaml:9: colour: unknown key" in error
    assert "it.yaml:4: layouts.default[0]: '4' is no layout" in error


@pytest.mark.slow
def test_what_cannot_run_there_is_named_with_its_reason(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    local(site, device="cpu", unsupported="{deepcam: {reason: it is large, source: a paper}}", python="{tools}/python")
    doctor(site)
    printed = capsys.readouterr().out
    assert "ok       benchmarks cosmoflow, gpt, resnet50 can run; deepcam is skipped: it is large (source: a" in printed
    assert "deepcam quick" not in printed


@pytest.mark.slow
def test_a_platform_where_no_benchmark_can_run(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    local(site, device="cpu", cannot_run="{reason: it is old, source: its manual}")
    assert doctor(site) == 0
    printed = capsys.readouterr().out
    why = "none of the suite's benchmarks can run there: it is old (source: its manual)"
    assert f"skipped  benchmarks {why}. Tests with a command of their own run" in printed
    assert printed.endswith(
        "next: a test with a command of its own (docs/foreign-loops.md), or --try-unsupported (docs/outcomes.md)\n"
    )


def test_a_name_that_is_not_there(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "lokal", "--site", str(site)]) == 2
    assert "there is no platform 'lokal' (did you mean 'local'?)" in capsys.readouterr().err


# --- what a job finds on its node ------------------------------------------------------------------------------------


def package(version: str | None = "2.9.1", error: str | None = None) -> dict[str, str | None]:
    return {"version": version, "error": error}


def report(**changes: object) -> dict[str, object]:
    packages = {"torch": package(), "numpy": package("2.1"), "h5py": package("3.9"), "PIL": package("10.0")}
    packages |= changes.pop("packages", {})  # type: ignore[arg-type]
    plain = {"python": "3.11.7", "executable": "/opt/py", "node": "cn1", "devices": [], "cores": 4}
    return {**plain, **changes, "packages": packages}


def platform(device: str = "cpu", scheduler: str = "slurm") -> Platform:
    keys = {"scheduler": scheduler, "device": device, "layouts": {"default": ("1x1",)}, "work_dir": "/work"}
    return Platform.model_validate({"name": "it", "source": Path("it.yaml"), **keys})


@pytest.mark.parametrize(
    ("found", "device", "message"),
    [
        (report(packages={"torch": package(None)}), "cpu", "/opt/py on cn1: torch is missing: name its module in"),
        (report(packages={"torch": package(None, "OSError: x.so")}), "cpu", r"torch cannot be imported \(OSError: x"),
        (report(packages={"torch": package("1.13.1")}), "cpu", "torch 1.13.1 is older than 2.0"),
        (report(packages={"h5py": package(None), "PIL": package(None)}), "cpu", "missing: h5py, Pillow: .*it --env"),
        (report(packages={"numpy": package(None, "ABI")}), "cpu", r"missing: numpy \(ABI\)"),
        (report(), "gpu", "torch 2.9.1 sees no GPU"),
        (report(packages={"cerebras.pytorch": package(None)}), "csx", "cerebras.pytorch is missing.*pip install"),
        (report(packages={"poptorch": package(None, "ABI")}), "ipu", r"poptorch cannot be imported \(ABI\)"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named_with_its_cure(found: dict[str, object], device: str, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        node_checks.judge(found, platform(device))


def test_what_is_there() -> None:
    found = node_checks.judge(report(devices=["A100 (40 GiB)"]), platform("gpu"))
    expected = "Python 3.11.7, torch 2.9.1, numpy 2.1, h5py 3.9, Pillow 10.0, A100 (40 GiB), 4 cores"
    assert found.text == f"/opt/py on cn1: {expected}"


@pytest.mark.slow
def test_the_report_of_a_bare_python() -> None:
    argv = [sys.executable, "-I", "-S", node_report.__file__]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found = node_checks.find_report(f"some noise\n{done.stdout}more noise\n")
    assert found is not None
    assert found["packages"] == dict.fromkeys(("torch", "numpy", "h5py", "PIL"), package(None))
    assert found["python"] == sys.version.split()[0]
    assert found["cores"] == len(os.sched_getaffinity(0))


@pytest.mark.slow
def test_a_family_needs_a_package_that_the_report_looks_for(tmp_path: Path) -> None:
    data = str(tmp_path / "no data")
    spec = node_checks.node_check_spec(platform("csx", "kubernetes"), tmp_path, "r", data)
    assert spec.arguments == ("import=cerebras.pytorch", data)
    (tmp_path / "cerebras").mkdir()
    (tmp_path / "cerebras/pytorch.py").write_text("__version__ = '2.10.0'\n")
    argv = [sys.executable, "-S", node_report.__file__, *spec.arguments, "import=poptorch"]
    env = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=env)
    found = json.loads(done.stdout.removeprefix(node_report.MARK))
    assert found["packages"]["cerebras.pytorch"] == package("2.10.0")
    assert found["packages"]["poptorch"] == package(None)
    assert found["folders"] == {data: False}


@pytest.mark.parametrize("text", ["", "hpcml_doctor {", "hpcml_doctor {]}", " hpcml_doctor {}"])
def test_a_log_without_a_report(text: str) -> None:
    assert node_checks.find_report(text) is None


@pytest.mark.slow
def test_a_package_that_breaks_is_no_crash(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise RuntimeError('built for another machine')\n")
    (tmp_path / "h5py.py").write_text("import missing_of_h5py\n")
    argv = [sys.executable, "-S", node_report.__file__]
    env = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=env)
    packages = json.loads(done.stdout.removeprefix(node_report.MARK))["packages"]
    assert packages["numpy"] == package(None, "RuntimeError: built for another machine")
    assert packages["h5py"]["error"] == "No module named 'missing_of_h5py'"


# --- this machine ----------------------------------------------------------------------------------------------------


def local(site: Path, **keys: str) -> None:
    tools = site.parent / "tools"
    tools.mkdir()
    python = tools / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    lines = [f"{key}: {value.replace('{tools}', str(tools))}\n" for key, value in keys.items()]
    (site / "platforms" / "it.yaml").write_text("".join(lines))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("{tools}/python", "torch is missing: pip install"),
        ("{tools}/none", "none is not there or older than Python 3.8; name another one as `python:` in"),
    ],
)
def test_the_python_of_this_machine(python: str, message: str, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    local(site, python=python)
    assert doctor(site) == 1
    printed = capsys.readouterr().out
    assert steps(printed) == [("ok", "file"), ("failed", "python")]
    assert message in printed


# --- a real cluster --------------------------------------------------------------------------------------------------

WELL = ["file", "transport", "commands", "work_dir", "policy", "sbatch"]


@pytest.mark.real_slurm
def test_all_is_well(slurm: Cluster, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(site, SLURM)
    data(site)
    before = slurm.jobs()
    assert doctor(site) == 0
    printed = capsys.readouterr().out
    assert steps(printed) == [*(("ok", title) for title in WELL), ("skipped", "node"), ("ok", "data")]
    assert "Slurm 2" in printed
    assert "with accounting" in printed
    assert "on nodes cn1 in partition standard" in printed
    assert printed.endswith(f"next: pytest -m it --site={site}\n")
    assert slurm.jobs() == before
    assert sorted(path.name for path in (site.parent / "work").iterdir()) == ["data"]


# What is wrong in the file -> the step that finds it, and what it says.
WRONG: dict[str, tuple[dict[str, str | None], str, str]] = {
    "partition": ({"slurm": "{partition: nosuch}"}, "sbatch", "`slurm: {partition: …}`; there are: sinfo"),
    "account": ({"slurm": "{account: nosuch}"}, "sbatch", "`slurm: {account: …}`; yours: sacctmgr show assoc"),
    "qos": ({"slurm": "{qos: nosuch}"}, "sbatch", "`slurm: {qos: …}`"),
    "time": ({"slurm": "{partition: brief}"}, "sbatch", "`time_limit:`"),
    "nodes": ({"layouts": "{default: [4x1]}"}, "sbatch", "`layouts:`"),
    "gres": ({"device": "gpu", "layouts": "{default: [1x5]}", "slurm": "{partition: gpu}"}, "sbatch", "`slurm: {gres"),
    "no partition": ({"device": "gpu", "slurm": "{account: z19}"}, "sbatch",
     "`slurm: {partition: …}` is missing, so Slurm takes its default; then "),
    "feature": ({"slurm": "{constraint: nosuch}"}, "sbatch", "`slurm: {constraint: …}`"),
    "rules": ({"policy": "{forbidden: {--account: it is yours anyway}}"}, "policy",
     "--account is forbidden here: it is"),
    "launcher": ({"launcher": "poprun"}, "policy", "launcher poprun belongs to another scheduler"),
    "folder": ({"work_dir": "/proc/nosuch"}, "work_dir", "/proc/nosuch cannot be written: "),
    "data": ({"size": "smoke"}, "data", "make it: python -m platforms prepare it --size smoke --site="),
}  # fmt: skip


@pytest.mark.real_slurm
def test_what_is_wrong_is_named(
    slurm: Cluster, site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "standard")  # of an interactive session, and no cure
    for name, (keys, title, message) in WRONG.items():
        write(site, {**SLURM, **keys})
        assert doctor(site) == 1
        printed = capsys.readouterr().out
        assert (name, steps(printed)[-1]) == (name, ("failed", title))
        assert all(word != "failed" for word, _ in steps(printed)[:-1])
        assert message in printed
        assert "next:" not in printed


@pytest.mark.real_slurm
def test_data_that_is_partly_there_or_out_of_sight(
    slurm: Cluster, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(site, {**SLURM, "data_dir": "data"})
    data(site)
    (site.parent / "work/data/cosmoflow-quick").rmdir()
    assert doctor(site) == 1
    assert "prepare it --size quick --benchmark cosmoflow --site=" in capsys.readouterr().out
    write(site, {**SLURM, "data_dir": "/nosuch/scratch/data"})
    assert doctor(site) == 0
    printed = capsys.readouterr().out
    assert ("skipped", "data") in steps(printed)
    assert "only compute nodes can see that" in printed


@pytest.mark.real_slurm
def test_a_job_says_what_its_node_has(slurm: Cluster, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(site, {**SLURM, "python": None})
    data(site)
    python = site.parent / "work/env-it/bin/python"  # where `prepare --env` puts it
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    assert doctor(site, "--node") == 1
    printed = capsys.readouterr()
    assert steps(printed.out)[-1] == ("failed", "node")
    assert "torch is missing: name its module in `modules:`" in printed.out
    assert "prepare it --env --with torch --site=" in printed.out
    assert "submitted" in printed.err
    assert slurm.jobs()[-1].state == "COMPLETED"


@COMPLETE
@pytest.mark.real_slurm
def test_a_node_that_has_everything(slurm: Cluster, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(site, SLURM)
    data(site)
    assert doctor(site, "--node") == 0
    printed = capsys.readouterr().out
    assert steps(printed) == [*(("ok", title) for title in WELL), ("ok", "node"), ("ok", "data")]
    assert f"node       {sys.executable} on " in printed
    assert "torch 2" in printed


@pytest.mark.real_slurm
def test_no_job_runs_on_a_platform_that_is_not_enabled(
    slurm: Cluster, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(site, SLURM)
    (site / "site.yaml").unlink()
    before = slurm.jobs()
    assert doctor(site, "--node") == 1
    assert f"it is not enabled: python -m platforms enable it --site={site}" in capsys.readouterr().out
    assert slurm.jobs() == before


@pytest.mark.real_slurm
def test_no_sbatch_here(
    slurm: Cluster, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "timeout", "id", "uname"):
        (tools / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(tools))
    write(site, SLURM)
    assert doctor(site) == 1
    printed = capsys.readouterr().out
    assert steps(printed)[-1] == ("failed", "commands")
    assert "there is no sbatch, squeue, scontrol, scancel, srun, sacct; `login_shell: true` in" in printed


@pytest.mark.real_slurm
def test_munge_is_away(slurm: Cluster, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(site, SLURM)
    slurm.stop("munged")
    assert doctor(site) == 1
    printed = capsys.readouterr().out
    assert steps(printed)[-1] == ("failed", "commands")
    assert "Slurm's controller does not answer: " in printed
    assert printed.endswith("; ask again later\n")


# --- over SSH --------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    server = Sshd(tmp_path / "sshd", setenv={"HOME": str(home)})
    yield server
    server.stop()


def alone(server: Sshd, **keys: str) -> dict[str, str]:
    """A machine without a scheduler behind a login."""
    fixed = {"scheduler": "ssh", "device": "cpu", "layouts": "{default: [1x1]}", "max_running": "1", "poll_s": "0.2"}
    reach = {"transport": "paramiko", "host": "login", "ssh_config": str(server.config), "python": sys.executable}
    return {**fixed, **reach, **keys}


@COMPLETE
@pytest.mark.real_ssh
def test_a_machine_without_a_scheduler(server: Sshd, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(site, alone(server, env=f"{{HPC_ML_BENCH_LOCK: {site.parent}/lock}}"))
    data(site)
    assert doctor(site, "--node") == 0
    printed = capsys.readouterr().out
    expected = ["file", "transport", "work_dir", "supervisor", "python", "policy", "node", "data"]
    assert steps(printed) == [("ok", title) for title in expected]
    assert "a job ran from its submission to its end" in printed


@pytest.mark.real_ssh
def test_a_login_that_fails(server: Sshd, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = server.client_config("other", known_hosts=server.knows("nobody"))
    write(site, alone(server, ssh_config=str(config)))
    assert doctor(site) == 1
    printed = capsys.readouterr().out
    assert steps(printed) == [("ok", "file"), ("failed", "transport")]
    assert "its host key is not known here" in printed
