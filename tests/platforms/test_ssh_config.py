"""ssh's configuration where no ssh is installed: what `ssh -G` says, or a refusal with file and line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from platforms.job import RefusedError
from platforms.transports import ssh
from platforms.transports.paramiko_login import read_settings
from platforms.transports.ssh import Settings

pytestmark = pytest.mark.real_ssh
NAMED = ("IdentityFile", "UserKnownHostsFile")  # what a configuration does not name has other defaults in ssh

SAME = [
    "Host n\n  Port 2222 # batch\n  User alice # batch's\n",
    "Host a # n\n  User alice\nUser bob # it is \"bob\n",
    "User a#b\nHostName h#x\n",
    'User "#a"\n',
    "User dom\\alice\n",
    "User=alice\nPort = 5\nHostName= x\n",
    'User "a b" # c\n\tPort\t7\t\r\n',
    'Host "n" m\nUser alice\n',
    "Host !n *\nUser alice\n",
    "Host N # [n]\nUser alice\nHost ?\nPort 3\n",
    "HostName %h.example\n",
    "Match Host n\nUser alice\n",
    "Match host n # and no other\nUser alice\n",
    "Match host n,m originalhost \"n\" # m\nUser alice\nMatch user alice\nPort 3\n",
    "Match !host n\nUser alice\n",
    "Match host n host m\nUser alice\n",
    "Match FINAL host n\nUser alice\n",
    "Match canonical host n\nUser alice\n",
    "Match !final host n\nUser alice\n",
    "Match all # of them\nUser alice\n",
    "ProxyJump a,b # by two\n",
    "ProxyJump none\nProxyCommand x\n",
    "ProxyJump none\nProxyJump j\nProxyCommand x\n",
    "ProxyJump none\nProxyJump j\n",
    "ProxyJump j\nProxyCommand x\n",
    "Match user alice\nProxyCommand x\nHost *\nProxyJump j\n",
    "ProxyCommand none\nProxyJump j\n",
    'ProxyCommand "x" "a b" # c "d"\n',
    "IdentitiesOnly true # only these\n",
    "IdentitiesOnly YES\n",
    "IdentityAgent none # here\n",
    'IdentityFile "~/a b" # d\nIdentityFile /c\nHost n\nIdentityFile ~/d\n',
    'UserKnownHostsFile /a "/b" # c\n',
    'ControlPath "/a b" #\nHostKeyAlias k # k\n',
    "Host m\nIdentitiesOnly yes\nSendEnv A B C # all\nLocalForward 1 a:2\n",
]  # fmt: skip
REFUSED = [
    ("User\n", 1), ("User =\n", 1), ("User a b\n", 1), ('User ""\n', 1), ('User "a\n', 1), ("Port 0\n", 1),
    ("\nPort 22x # batch\n", 2), ("ProxyJump a, b\n", 1), ("HostName a b\n", 1), ("Host #n\n", 1), ("Match\n", 1),
    ("# Include\nHost m\n  include x\n", 3), ("Match nonsense n\n", 1), ("Match host\n", 1), ("Match !all\n", 1),
    ("Match host n tagged x\nUser a\n", 1), ("User a\nMatch localnetwork 10.0.0.0/8\n", 2), ("Match version *\n", 1),
    ("Match sessiontype exec\n", 1), ("Match command x\n", 1), ("Match exec true\n", 1), ("Port ssh\n", 1),
    ("Host [n]\n", 1), ("Match host=n\n", 1), ("User 'a b'\n", 1), ('"User" a\n', 1), ("Host a\\ b\n", 1),
]  # fmt: skip


@pytest.fixture(params=["n", "alice@n:7"])
def host(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def named_only(settings: Settings, text: str) -> Settings:
    keys, hosts = (re.search(rf"^\s*{key}\b", text, re.MULTILINE) for key in NAMED)
    ours = settings.known_hosts[: 2 if "/b" in text else 1]
    return replace(settings, identity_files=settings.identity_files * bool(keys), known_hosts=ours * bool(hosts))


@pytest.mark.parametrize("text", SAME)
def test_what_is_read_without_ssh_is_what_ssh_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, host: str
) -> None:
    config = tmp_path / "config"
    config.write_text(text)
    wanted = ssh.settings(f"ssh://{host}" if ":" in host else host, str(config))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = read_settings(host, str(config))
    assert named_only(found, text) == named_only(wanted, text)


@pytest.mark.parametrize(("text", "line"), REFUSED)
def test_what_only_ssh_understands_is_refused_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, line: int
) -> None:
    config = tmp_path / "config"
    config.write_text(text)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RefusedError, match=f"^{config}:{line}: .*ssh"):
        read_settings("n", str(config))


def test_names_of_files_may_have_blanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ssh -G` writes them without quotes."""
    config = tmp_path / "config"
    config.write_text('UserKnownHostsFile "/a b" "/c d" # e\n')
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_settings("n", str(config)).known_hosts == (Path("/a b"), Path("/c d"))
