"""A platform that waits for a person: its jobs are PENDING with the line to type, and everything else goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.sshd import PASSPHRASE, Sshd, make_key

pytestmark = pytest.mark.real_ssh


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An ssh_config for a server whose key needs its passphrase, which nobody types here."""
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    server = Sshd(tmp_path / "far")
    yield server.client_config("locked", key=make_key(tmp_path / "locked", PASSPHRASE))
    server.stop()


@pytest.mark.parametrize(
    ("transport", "words"), [("openssh", "*ssh -F *-MNf *login*"), ("paramiko", "*ssh-add *locked*")]
)
def test_a_login_that_wants_a_person(project, far: Path, transport: str, words: str) -> None:
    project.job_test()
    keys = f"transport: {transport}\nhost: login\nssh_config: {far}\nwork_dir: {project.path}/there\n"
    text = f"scheduler: slurm\ndevice: cpu\nlayouts: {{default: [1x1]}}\n{keys}"
    project.write("site/platforms/campus.yaml", text)
    project.write("site/site.yaml", "enabled: [campus]\n")
    result = project.pytest("--platform=campus", "--platform=local", "-rs", "--run-id=r1")
    result.assert_outcomes(passed=1, skipped=1)
    assert result.ret == 75
    result.stdout.fnmatch_lines(["*PENDING *on campus*", "*why: *needs its passphrase*", "*pytest --resume=r1*", words])
    assert not (project.path / "there").exists()
