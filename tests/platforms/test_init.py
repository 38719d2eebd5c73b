"""`python -m platforms init`: what machines say of themselves becomes a file that loads."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from platforms.__main__ import main
from platforms.config import draft, schema, yaml_lines
from platforms.config.draft import DraftLine, DraftRequest
from platforms.config.schema import Platform
from platforms.job import ConfigError, Layout
from platforms.schedulers import FILE_KEYS, machine_draft
from platforms.schedulers.machine_draft import Answer, Devices, Reach
from platforms.schedulers.slurm import draft as slurm_draft
from tests.clusters.slurm import Cluster
from tests.clusters.sshd import Sshd

NIGHTLY = pytest.mark.nightly("platforms/transports", "platforms/commands/init.py")


def partition(name: str, time: str = "1-00:00:00", share: str = "NO", default: str = "NO") -> str:
    """A line of `scontrol --oneliner show partition`, shortened."""
    return f"PartitionName={name} AllowQos=ALL Default={default} MaxTime={time} OverSubscribe={share} State=UP"


# Sites, as their commands describe them.
SITES: dict[str, dict[str, str]] = {
    "cray": {
        "version": "slurm 23.02.7",
        "nodes": "standard|256|2|64|5860|(null)\nhighmem|256|2|64|584|(null)\ngpu|64|1|32|4|gpu:4",
        "partitions": "\n".join(
            [
                partition("standard", share="EXCLUSIVE"),
                partition("highmem", share="EXCLUSIVE"),
                partition("gpu", "12:00:00"),
            ]
        ),
        "config": "ClusterName             = archer2\nSlurmctldPort           = 6817",
        "associations": "archer2|z19|gpu-shd,highmem,short,standard\nother|t01|normal",
        "python": "3.6.15",
        "folders": "$HOME with work in place of home|/work/z19/z19/me\n$HOME|/home/z19/z19/me",
        "modules": "/opt/modules:\npytorch/1.13.1-gpu(default)\npytorch/2.9.1a0\n",
    },
    "mixed": {
        "version": "slurm 24.11.5",
        "nodes": "all|64|2|32|2|gpu:a100:4(S:0-1)\nall|64|2|32|9|gpu:h100:8(S:0,1),shard:h100:32(S:0,1)\n"
        "old|16|2|8|3|(null)",
        "partitions": partition("old", "00:30:00") + "\n" + partition("all", "UNLIMITED", default="YES"),
        "config": "ClusterName = flow",
        "associations": "flow|a|normal\nflow|b|normal",
        "python": "3.11.7",
        "folders": "$SCRATCH|/scratch/it's me\n$HOME|/home/me",
    },
    "bare": {
        "version": "slurm-wlm 22.05.8",
        "nodes": "debug|2+|1|2+|1|(null)\nthe login node says: quota 95%",
        "partitions": "sinfo: warning: something\n" + partition("debug", "UNLIMITED"),
        "config": "ClusterName = 007",
        "python": "3.12.1",
        "folders": "$HOME|/home/me",
    },
}


def answers_of(site: str) -> dict[str, Answer]:
    answers = {name: Answer() for name in ("associations", "modules")}
    answers |= {name: Answer(0, text) for name, text in SITES[site].items()}
    if site == "bare":
        answers["associations"] = Answer(1, "You are not running a supported accounting_storage plugin\nmore words")
    return answers


def lines_of(site: str, partition: str | None = None, taken: tuple[str, ...] = ()) -> list[DraftLine]:
    answers = answers_of(site)
    cluster = slurm_draft.read("login1", answers)
    return slurm_draft.lines(cluster, answers, Reach("slurm"), DraftRequest("it", _named(partition), taken_marks=taken))


def _named(partition: str | None) -> dict[str, str]:
    return {"partition": partition} if partition else {}


def loaded(folder: Path, lines: list[DraftLine]) -> Platform:
    (folder / "it.yaml").write_text(draft.text("head\nlines", lines), encoding="utf-8")
    return schema.load_platforms([folder], schedulers=FILE_KEYS)["it"]


def origins(lines: list[DraftLine]) -> dict[str, str]:
    return {line.path: line.origin for line in lines}


# --- what a site says becomes a file ---------------------------------------------------------------------------------


def test_whole_nodes_of_cpus(tmp_path: Path) -> None:
    lines = lines_of("cray", "standard")
    it = loaded(tmp_path, lines)
    assert (it.scheduler, it.device, it.marks) == ("slurm", "cpu", ("cpu", "archer2", "slurm"))
    assert it.layouts == {"default": (Layout(1, 2, "cpu"),)}
    assert (it.threads_per_rank, it.slurm.cpus_per_rank, it.slurm.exclusive) == (64, 128, True)
    assert (it.slurm.partition, it.slurm.account, it.slurm.qos, it.slurm.gres) == ("standard", "z19", None, None)
    assert (it.time_limit_s, it.poll_s) == (3600, 10)
    assert it.work_dir == "/work/z19/z19/me/hpc-ml-bench-work"
    said = origins(lines)
    assert said["slurm.qos"] == "TODO one of gpu-shd, highmem, short, standard, if the partition wants one"
    assert said["modules"] == (
        "TODO one of pytorch/1.13.1-gpu, pytorch/2.9.1a0, or `python:`; python3 there is 3.6.15 and jobs need 3.8"
    )
    assert "others: highmem, gpu (gpu:4)" in said["slurm.partition"]
    assert [line.path for line in lines if line.todo] == ["modules", "slurm.qos"]


def test_gpus_without_a_type(tmp_path: Path) -> None:
    lines = lines_of("cray", "gpu")
    it = loaded(tmp_path, lines)
    assert (it.device, it.layouts, it.slurm.gres) == ("gpu", {"default": (Layout(1, 4, "gpu"),)}, None)
    assert (it.threads_per_rank, it.slurm.cpus_per_rank, it.slurm.exclusive) == (8, 16, False)
    assert it.marks == ("archer2", "slurm")
    assert "; for its processors another file: `device: cpu`, layouts 1x" in origins(lines)["device"]


def test_several_kinds_of_gpus_in_the_default_partition(tmp_path: Path) -> None:
    lines = lines_of("mixed", taken=("flow",))
    it = loaded(tmp_path, lines)
    assert (it.slurm.partition, it.device, it.layouts) == ("all", "gpu", {"default": (Layout(1, 8, "gpu"),)})
    assert (it.slurm.gres, it.marks, it.time_limit_s) == ("gpu:h100", ("h100", "nvidia", "slurm"), 3600)
    assert it.work_dir == "/scratch/it's me/hpc-ml-bench-work"
    assert origins(lines)["slurm.account"] == "TODO one of a, b"


def test_a_short_partition_limits_the_time(tmp_path: Path) -> None:
    it = loaded(tmp_path, lines_of("mixed", "old"))
    assert (it.time_limit_s, it.device, it.layouts["default"]) == (1800, "cpu", (Layout(1, 2, "cpu"),))


def test_a_cluster_without_accounts_or_limits(tmp_path: Path) -> None:
    lines = lines_of("bare")
    it = loaded(tmp_path, lines)
    assert (it.slurm.account, it.slurm.qos, it.marks) == (None, None, ("cpu", "slurm"))
    assert (it.layouts, it.threads_per_rank, it.time_limit_s) == ({"default": (Layout(1, 1, "cpu"),)}, 2, 3600)
    assert "You are not running a supported accounting_storage plugin)" in origins(lines)["slurm.account"]
    assert "slurm.qos" not in origins(lines)


def test_a_partition_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"login1: there is no partition 'gpus' \(did you mean 'gpu'\?\)"):
        lines_of("cray", "gpus")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(null)", ()),
        ("gpu:4", (Devices("gpu", "", 4),)),
        ("gpu:v100:4(S:0-1)", (Devices("gpu", "v100", 4),)),
        ("gpu:a100_1g.5gb:7(S:0,2),cs:1", (Devices("gpu", "a100_1g.5gb", 7), Devices("cs", "", 1))),
        ("gpu:h100:no_consume:2,bandwidth:lustre", (Devices("gpu", "h100", 2),)),
        ("", ()),
    ],
)
def test_generic_resources(text: str, expected: tuple[Devices, ...]) -> None:
    assert slurm_draft.devices_of(text) == expected


def test_a_machine_without_a_scheduler(tmp_path: Path) -> None:
    cores = "\n".join(f"{socket},{core}" for socket in range(2) for core in range(16))
    texts = {"python": "3.12.1", "folders": "$HOME|/home/me", "gpus": "/dev/nvidia0\n/dev/nvidia1", "sockets": cores}
    answers = {"modules": Answer(), "rocm": Answer()} | {name: Answer(0, text) for name, text in texts.items()}
    assert machine_draft.hardware_alone(answers).cores_per_socket == 16
    lines = machine_draft.lines_alone("box", answers, Reach("ssh", "paramiko", "me@box", "/etc/my ssh", True))
    it = loaded(tmp_path, lines)
    assert (it.scheduler, it.transport, it.host, it.ssh_config) == ("ssh", "paramiko", "me@box", "/etc/my ssh")
    assert (it.device, it.layouts) == ("gpu", {"default": (Layout(1, 2, "gpu"),)})
    assert (it.max_running, it.login_shell) == (1, True)


@pytest.mark.parametrize(
    "text", ["plain", "on", "true", "1e3", "007", "a: b", "a #b", "[x]", "-x", "5", "", "é", 'a"b', "x:"]
)
def test_texts_are_read_back_as_they_are(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(f"key: {draft.written(text)}\n", encoding="utf-8")
    assert yaml_lines.read(tmp_path / "x.yaml").value == {"key": text}


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["local"], "is this machine without a scheduler"),
        (["Big"], "'Big' is no name (small letters, digits and _"),
        (["timeout"], "already means something to pytest"),
        (["slurm"], "is a mark of the platform"),
        (["here", "--transport", "paramiko"], "needs --ssh HOST"),
        (["here", "--scheduler", "ssh"], "this machine is the platform `local` already"),
        (["here", "--site", "/no/such"], "/no/such: no such folder"),
        (["here", "--site", __file__], f"{__file__}: is a file; --site and HPC_ML_BENCH_SITE name its folder: "),
        (["there", "--diff"], "`python -m platforms init --diff` is gone; write a second file and compare: mkdir"),
    ],
    ids=" ".join,
)
def test_a_request_that_makes_no_sense(
    words: list[str], message: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--site", str(site), *words]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert list(site.iterdir()) == []


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose profile adds a folder `tools` to a PATH without Slurm."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "bash", "env", "sed", "id", "timeout", "cat", "printf", "python3", "grep"):
        (tools / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    home = tmp_path / "home"
    (home / "tools").mkdir(parents=True)
    (home / ".bash_profile").write_text(f"export PATH={home}/tools:{tools}\n")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("HOME", str(home))
    return home


def test_no_slurm_here(nowhere: Path, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "here", "--site", str(site)]) == 2
    error = capsys.readouterr().err
    assert "there is no Slurm for sinfo (sh" in error
    assert "--ssh HOST --scheduler ssh" in error
    assert list(site.iterdir()) == []


def test_slurm_that_only_a_login_shell_finds(nowhere: Path, site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, name in {"sinfo --version": "version", "sinfo": "nodes", "scontrol": "partitions"}.items():
        tool, _, word = command.partition(" ")
        text = SITES["cray"][name]
        test = f'[ "$1" = {word} ] || exec "$0".rest "$@"\n' if word else ""
        path = nowhere / "tools" / (tool if word or tool != "sinfo" else "sinfo.rest")
        path.write_text(f"#!/bin/sh\n{test}cat <<'END'\n{text}\nEND\n")
        path.chmod(0o755)
    assert main(["init", "here", "--site", str(site), "--partition", "standard"]) == 0
    it = schema.load_platforms([site / "platforms"], schedulers=FILE_KEYS)["here"]
    assert it.login_shell
    assert it.slurm.partition == "standard"
    assert it.work_dir == f"{nowhere}/hpc-ml-bench-work"
    printed = capsys.readouterr().out
    assert "TODO" in printed
    assert f"python -m platforms doctor here --size smoke --site={site}\n" in printed


# --- real machines ---------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("SCRATCH", "SCRATCHDIR", "WORK", "WORKDIR", "PROJECTDIR"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.mark.real_slurm
@pytest.mark.parametrize(
    ("partition", "device", "layout"), [("gpu", "gpu", "1x4"), ("cerebras", "csx", "1x1"), ("brief", "cpu", "1x4")]
)
def test_a_real_partition(slurm: Cluster, site: Path, home: Path, partition: str, device: str, layout: str) -> None:
    assert main(["init", "real", "--site", str(site), "--partition", partition, "--enable"]) == 0
    it = schema.load_platforms([site / "platforms"], schedulers=FILE_KEYS)["real"]
    assert (it.slurm.partition, it.device, it.layout_list()) == (partition, device, (Layout.parse(layout, device),))
    assert it.work_dir == f"{home}/hpc-ml-bench-work"
    assert it.time_limit_s == (120 if partition == "brief" else 3600)
    assert schema.load_site(site).enabled == ("real",)


@pytest.mark.real_slurm
def test_what_is_there_is_not_overwritten(
    slurm: Cluster, site: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["init", "real", "--site", str(site)]
    assert main(words) == 0
    assert f"python -m platforms enable real --site={site}" in capsys.readouterr().out
    path = site / "platforms" / "real.yaml"
    mine = path.read_text().replace("poll_s: 10 ", "poll_s: 60 ")
    path.write_text(mine)
    assert main(words) == 2
    assert "is there already (--force" in capsys.readouterr().err
    assert main([*words, "--enable"]) == 0
    assert path.read_text() == mine
    assert main([*words, "--force", "--partition", "gpu"]) == 0
    assert "partition: gpu" in path.read_text()
    assert "poll_s: 10 " in path.read_text()


@pytest.fixture
def server(
    tmp_path: Path, home: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Sshd]:
    """A login node; of the cluster, where the test has one."""
    environ = {"HOME": str(home), "PATH": os.environ["PATH"]}
    if "slurm" in request.fixturenames:
        environ |= request.getfixturevalue("slurm").environ
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    server = Sshd(tmp_path / "sshd", setenv=environ)
    yield server
    server.stop()


@pytest.mark.real_ssh
@pytest.mark.real_slurm
@pytest.mark.parametrize("transport", ["openssh", pytest.param("paramiko", marks=NIGHTLY)])
def test_a_login_node_far_away(
    slurm: Cluster,
    server: Sshd,
    site: Path,
    transport: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("SLURM_CONF")
    words = ["init", "real", "--site", str(site), "--ssh", "login", "--ssh-config", str(server.config)]
    assert main([*words, "--transport", transport]) == 0
    it = schema.load_platforms([site / "platforms"], schedulers=FILE_KEYS)["real"]
    assert (it.transport, it.host, it.ssh_config) == (transport, "login", str(server.config))
    assert it.slurm.partition == "standard"
    capsys.readouterr()
    assert main(["doctor", "real", "--site", str(site)]) == 1
    printed = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert [title for word, title in printed if word == "ok"][-1] == "sbatch"
    assert printed[-1] == ["failed", "data"]


@pytest.mark.real_ssh
def test_a_real_machine_without_a_scheduler(server: Sshd, site: Path, home: Path) -> None:
    words = ["init", "box", "--site", str(site), "--ssh", "login", "--ssh-config", str(server.config)]
    assert main([*words, "--scheduler", "ssh"]) == 0
    it = schema.load_platforms([site / "platforms"], schedulers=FILE_KEYS)["box"]
    assert (it.scheduler, it.host, it.work_dir) == ("ssh", "login", f"{home}/hpc-ml-bench-work")
    assert it.layout_list()[0].nodes == 1
