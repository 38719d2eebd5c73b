"""Commands and files to a login node: here, and through a real sshd by ssh and by paramiko, whatever goes wrong."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from platforms.config.schema import Platform
from platforms.job import AwayError, BenchError, ConfigError, LoginNeeded, RefusedError
from platforms.transports import CommandTimeout, MissingFile, Transport, connect, file_transfer, framing, ssh
from platforms.transports.openssh import OpensshTransport
from platforms.transports.paramiko import ParamikoTransport
from tests.clusters.ports import LOOPBACK, reserved_port
from tests.clusters.sshd import INSTALL, PASSPHRASE, Sshd, make_key
from tests.programs import require
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
BOTH = ("openssh", "paramiko")
ALL_BYTES = bytes(range(256))

real_ssh = pytest.mark.real_ssh
NIGHTLY = pytest.mark.nightly("platforms/transports")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    folder = tmp_path_factory.mktemp("sshd")
    home = {"HOME": str(folder)}  # without anybody's profile
    gate = Sshd(folder / "gate", setenv=home)
    server = Sshd(folder / "server", gate=gate, setenv=home)
    yield server
    server.stop()
    gate.stop()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Sshd]]:
    """Servers of one test's own."""
    servers = []

    def start(name: str = "own", **settings: object) -> Sshd:
        settings = {"setenv": {"HOME": str(tmp_path)}, **settings}
        servers.append(Sshd(tmp_path / name, **settings))
        return servers[-1]

    yield start
    for server in servers:
        server.resume()
        server.stop()


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where ssh's connections lie; what is left of them is an error."""
    with tempfile.TemporaryDirectory(prefix="hpcml") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)
        until(lambda: not [path for path in Path(folder).rglob("*") if path.is_socket()], "a connection is left")


@pytest.fixture
def to(sockets: Path) -> Iterator[Callable[..., Transport]]:
    """Transports of any kind, closed in the end."""
    transports = []

    def make(kind: str, config: Path | None = None, host: str = "login", **keys: object) -> Transport:
        remote = {} if kind == "local" else {"host": host, "ssh_config": str(config)}
        platform = Platform(name="there", source=Path("there.yaml"), transport=kind, **remote, **keys)
        transports.append(connect(platform))
        return transports[-1]

    yield make
    for transport in transports:
        transport.close()


@pytest.fixture(
    params=[
        "local",
        *(pytest.param(name, marks=real_ssh) for name in ("openssh login", "paramiko login")),
        pytest.param("paramiko inner", marks=[real_ssh, NIGHTLY]),
    ]
)
def transport(request: pytest.FixtureRequest, to: Callable[..., Transport]) -> Transport:
    kind, _, host = request.param.partition(" ")
    return to(kind, request.getfixturevalue("server").config if host else None, host)


def shell(transport: Transport, text: str, **settings: object):
    return transport.run(["sh", "-c", text], **settings)


def running(word: str) -> list[str]:
    """Processes with this word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def words_of(error: pytest.ExceptionInfo[BenchError]) -> str:
    text = str(error.value)
    assert "\n" not in text, "a message is one line"
    assert "Traceback" not in text
    return text


# --- the same everywhere ---------------------------------------------------------------------------------------------


def test_exit_codes_and_both_streams_are_exact(transport):
    cases = {
        "exit 0": (0, b"", b""),
        "exit 3": (3, b"", b""),
        "exit 124": (124, b"", b""),
        "exit 255": (255, b"", b""),
        "kill -9 $$": (137, b"", b""),
        "kill -TERM $$": (143, b"", b""),
        "kill -SEGV $$": (139, b"", b""),
        "printf out; printf err >&2; exit 7": (7, b"out", b"err"),
        "printf '\\n\\n'; echo >&2; exit 1": (1, b"\n\n", b"\n"),
        "echo $LC_ALL": (0, b"C\n", b""),
        "set -e; false": (1, b"", b""),
        "exec >&-; exec 2>&-; exit 4": (4, b"", b""),
    }
    for text, expected in cases.items():
        done = shell(transport, text)
        assert (done.exit_code, done.stdout, done.stderr) == expected, text


def test_a_command_that_is_not_there_is_exit_code_127_and_says_its_name(transport, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # a folder that may not be read would be the cause
    done = transport.run(["no-such-command", "-x"])
    assert (done.exit_code, done.stdout) == (127, b"")
    assert b"no-such-command" in done.stderr
    assert b"No such file or directory" in done.stderr


def test_arguments_arrive_as_they_are(transport):
    arguments = ["", "two words", "it's", '"', "$HOME", "`id`", "a\nb", "*", "\\", "!x", "-n", "ä", "%s", "a;b", "~"]
    done = transport.run(["printf", "%s\\0", *arguments])
    assert done.stdout == b"".join(argument.encode() + b"\0" for argument in arguments)


def test_input_arrives_as_it_is(transport):
    assert shell(transport, "cat", input=ALL_BYTES * 3).stdout == ALL_BYTES * 3
    assert shell(transport, "cat").stdout == b"", "there is nothing to read, and no waiting for it"
    assert shell(transport, "exit 5", input=b"x" * 1_000_000).exit_code == 5, "nobody has to read it"


def test_megabytes_in_and_out_at_once(transport):
    size = 5_000_000
    both = shell(transport, f"head -c {size} /dev/zero >&2; cat; head -c {size} /dev/zero >&2", input=b"x" * size)
    assert both.exit_code == 0
    assert both.stdout == b"x" * size
    assert both.stderr == b"\0" * (2 * size)


def test_a_list_of_processes_does_not_look_like_the_end(transport):
    done = shell(transport, "cat /proc/self/cmdline /proc/[0-9]*/cmdline | tr '\\0' ' '; echo end; exit 0")
    assert done.stdout.endswith(b"end\n")
    assert b"timeout -k" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("ignoring", [False, True])
def test_a_command_ends_at_its_limit_with_all_it_started(transport, tmp_path, ignoring, monkeypatch):
    monkeypatch.setattr(framing, "GRACE_S", 60.0)  # the other side may be slow
    word = f"{tmp_path}/limit"
    goes_on = f"until sleep 300; do :; done; touch {word}"  # a sleep may be ended, too
    text = f"{'trap : TERM; ' if ignoring else ''}echo {word} >/dev/null; sleep 300 & wait; {goes_on}"
    with pytest.raises(CommandTimeout, match="limit of 1 s") as error:
        shell(transport, text, timeout_s=1.0)
    assert not Path(word).exists()
    assert transport.where in words_of(error)
    until(lambda: not running(word), "it still runs")
    assert transport.run(["true"]).exit_code == 0


def test_what_is_left_in_the_background_goes_on_and_is_not_waited_for(transport, tmp_path):
    goes_on = f"for n in $(seq 600); do [ -e {tmp_path}/go ] && break; sleep 0.1; done; touch {tmp_path}/later"
    assert shell(transport, f"({goes_on}) & exit 2").exit_code == 2
    assert not (tmp_path / "later").exists()
    (tmp_path / "go").touch()
    until((tmp_path / "later").exists, "it was killed")


@pytest.mark.slow
def test_many_threads_at_once(transport):
    with ThreadPoolExecutor(32) as pool:
        codes = list(pool.map(lambda n: shell(transport, f"sleep 0.05; exit {n}").exit_code, range(32)))
    assert codes == list(range(32))


def test_it_can_be_used_again_after_close(transport):
    assert transport.run(["true"]).exit_code == 0
    transport.close()
    transport.close()
    assert transport.run(["true"]).exit_code == 0


def test_a_file_goes_there_whole_and_comes_back(transport, tmp_path):
    path = tmp_path / "new folder" / "it's" / "a file"
    content = ALL_BYTES * 5000 + b"\nno newline"
    file_transfer.put(transport, content, str(path))
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in path.parent.iterdir()] == ["a file"], "a draft is left"
    file_transfer.put(transport, b"", str(path))
    assert file_transfer.get(transport, str(path)) == b""
    file_transfer.put(transport, content, str(path))
    assert file_transfer.get(transport, str(path)) == content
    assert file_transfer.get(transport, str(path), 1000) == content[1000:]
    assert file_transfer.get(transport, str(path), 1000, 7) == content[1000:1007]
    assert file_transfer.get(transport, str(path), len(content) - 2, 100) == content[-2:]
    assert file_transfer.get(transport, str(path), len(content)) == b""
    assert file_transfer.get(transport, str(path), len(content) + 5, 5) == b""


def test_files_that_are_not_there_and_folders(transport, tmp_path):
    with pytest.raises(MissingFile, match="there is no such file") as error:
        file_transfer.get(transport, str(tmp_path / "nothing"))
    assert str(tmp_path / "nothing") in words_of(error)
    assert transport.where in words_of(error)
    with pytest.raises(RefusedError, match="Is a directory"):
        file_transfer.get(transport, str(tmp_path))
    with pytest.raises(RefusedError, match="Is a directory"):
        file_transfer.put(transport, b"x", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_existing_returns_the_paths_that_exist(transport, tmp_path):
    there = [tmp_path / "a folder", tmp_path / "it's"]
    there[0].mkdir()
    there[1].write_text("x")
    paths = [str(tmp_path / "missing"), str(there[0]), str(there[1]), "/proc/nowhere/file"]
    assert file_transfer.existing(transport, paths) == [str(there[0]), str(there[1])]
    assert file_transfer.existing(transport, []) == []


def test_a_file_that_cannot_be_written_is_reported_with_the_systems_message(transport, tmp_path):
    (tmp_path / "file").write_text("x")
    for path, words in {f"{tmp_path}/file/below": "File exists", "/proc/nowhere/file": "No such file"}.items():
        with pytest.raises(RefusedError, match=words) as error:
            file_transfer.put(transport, b"x", path)
        assert path in words_of(error)
        assert transport.typed("df -h")[:5] in words_of(error), "and what to type"


def test_a_full_disk_is_reported_and_leaves_nothing(transport, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.getuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        with pytest.raises(RefusedError, match="No space left on device"):
            file_transfer.put(transport, b"x" * 3_000_000, f"{disk}/folder/file")
        assert list((disk / "folder").iterdir()) == []
        file_transfer.put(transport, b"x" * 300_000, f"{disk}/folder/file")
        with pytest.raises(RefusedError, match="No space left on device"):
            file_transfer.put(transport, b"y" * 3_000_000, f"{disk}/folder/file")
        assert (disk / "folder" / "file").read_bytes() == b"x" * 300_000, "the old one is gone"
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_command_too_long_for_any_machine_is_refused_before_it_is_sent(transport):
    with pytest.raises(RefusedError, match="cannot be sent"):
        transport.run(["true", "x" * 130_000])
    assert transport.run(["true", "x" * 100_000]).exit_code == 0


def test_typed_is_the_command_line_of_a_person(to, server):
    assert to("local").typed("squeue -j 4") == "squeue -j 4"
    for kind in BOTH:
        typed = to(kind, server.config).typed("squeue -j 4")
        assert shlex.split(typed) == ["ssh", "-F", str(server.config), "login", "squeue -j 4"]


@pytest.mark.slow
def test_nothing_is_loaded_or_reached_before_the_first_command():
    code = (
        "import sys; from platforms.config.schema import Platform; from platforms.transports import connect\n"
        "for kind in ('local', 'openssh', 'paramiko'): connect(Platform(name='x', transport=kind, host='nowhere'))\n"
        "print(*{'paramiko', 'jinja2', 'cryptography'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).split() == []


@pytest.mark.parametrize("host", [None, "-oProxyCommand=touch x"])
@pytest.mark.parametrize("kind", BOTH)
def test_a_missing_or_wrong_host_is_a_mistake_in_the_file(kind, host):
    with pytest.raises(ConfigError, match=r"there\.yaml: host:"):
        connect(Platform(name="there", source=Path("there.yaml"), transport=kind, host=host))


# --- the shell at the other end --------------------------------------------------------------------------------------


@pytest.fixture
def noisy(serve, tmp_path):
    """A server whose users have shell start files that say much and ask a question."""
    noise = "echo; echo welcome; echo 'quota: 95 %' >&2; read answer; echo \"got $answer\"; set -eu\n"
    for name in (".bash_profile", ".bashrc"):
        (tmp_path / name).write_text("echo hello; echo oops >&2\n")
    (tmp_path / ".bash_profile").write_text(noise + 'export PATH="$HOME/tools:$PATH"\n')
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "sbatch-of-ours").write_text("#!/bin/sh\ncat; exit 9\n")
    (tmp_path / "tools" / "sbatch-of-ours").chmod(0o755)
    return serve()


@real_ssh
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("login_shell", [False, True])
def test_a_profiles_output_input_and_settings_do_not_show(to, noisy, kind, login_shell):
    transport = to(kind, noisy.config, login_shell=login_shell)
    done = shell(transport, "cat; echo e >&2; exit 3", input=b"in\n")
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"in\n", b"e\n")
    assert transport.run(["sbatch-of-ours"], input=b"script").exit_code == (9 if login_shell else 127)


def test_a_login_shell_here(to, noisy, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    done = to("local", login_shell=True).run(["sbatch-of-ours"], input=b"script")
    assert (done.exit_code, done.stdout, done.stderr) == (9, b"script", b"")


@real_ssh
@pytest.mark.parametrize("kind", BOTH)
def test_a_profile_that_ends_the_shell_is_no_exit_code(to, serve, tmp_path, kind):
    (tmp_path / ".bash_profile").write_text("echo your password has expired >&2; exit 0\n")
    with pytest.raises(AwayError, match="your password has expired"):
        to(kind, serve().config, login_shell=True).run(["true"])


# --- who may come in, and is it the right machine --------------------------------------------------------------------


@real_ssh
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("host", ["login", "inner"])
def test_an_unknown_host_key_is_refused_and_never_learned(to, server, tmp_path, kind, host):
    empty = tmp_path / "empty"
    empty.touch()
    config = server.client_config("unknown", known_hosts=empty)
    with pytest.raises(RefusedError, match="host key is not known") as error:
        to(kind, config, host).run(["true"])
    assert f"ssh -F {config} {host}" in words_of(error)
    assert "fingerprint" in words_of(error)
    assert empty.read_text() == ""


@real_ssh
@pytest.mark.parametrize("kind", BOTH)
def test_a_changed_host_key_is_another_error(to, server, tmp_path, kind):
    wrong = server.knows("wrong", make_key(tmp_path / "other"))
    config = server.client_config("changed", known_hosts=wrong)
    before = wrong.read_text()
    with pytest.raises(RefusedError, match="an attacker stands between") as error:
        to(kind, config).run(["true"])
    name = shlex.quote(f"[{LOOPBACK}]:{server.port}")
    assert f"ssh-keygen -R {name} -f {wrong}" in words_of(error)
    assert "SHA256:" in words_of(error)
    assert wrong.read_text() == before


@real_ssh
@pytest.mark.parametrize("kind", BOTH)
def test_a_key_that_the_server_does_not_know_is_refused(to, server, tmp_path, kind):
    config = server.client_config("stranger", key=make_key(tmp_path / "stranger"))
    with pytest.raises(RefusedError, match=f"refuses user {server.user}") as error:
        to(kind, config).run(["true"])
    assert "ssh -F" in words_of(error)


@real_ssh
@pytest.mark.parametrize("kind", BOTH)
def test_a_key_with_a_passphrase_needs_a_person_or_an_agent(to, serve, tmp_path, kind, monkeypatch):
    locked = make_key(tmp_path / "locked", PASSPHRASE)
    server = serve()
    (server.folder / "authorized_keys").write_text(locked.with_suffix(".pub").read_text())
    config = server.client_config("locked", key=locked)
    with pytest.raises(LoginNeeded, match="needs its passphrase") as error:
        to(kind, config).run(["true"])
    assert error.value.command in words_of(error)
    assert error.value.command.startswith("ssh-add" if kind == "paramiko" else f"ssh -F {config} -MNf")
    with agent(tmp_path, locked, monkeypatch):
        assert to(kind, config).run(["true"]).exit_code == 0


class agent:
    """A real ssh-agent that holds one key, unlocked by an askpass program."""

    def __init__(self, folder: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        require("ssh-agent", "ssh-add", install=INSTALL)
        askpass = folder / "askpass"
        askpass.write_text(f"#!/bin/sh\necho {shlex.quote(PASSPHRASE)}\n")
        askpass.chmod(0o755)
        self.socket = Path(tempfile.mkdtemp(prefix="hpcml"), "agent")
        self.process = subprocess.Popen(["ssh-agent", "-D", "-a", self.socket], stdout=subprocess.DEVNULL)
        until(self.socket.exists, "no agent")
        monkeypatch.setenv("SSH_AUTH_SOCK", str(self.socket))
        env = {**os.environ, "SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force"}
        asked = partial(subprocess.run, ["ssh-add", "-l"], env=env, capture_output=True)
        until(lambda: asked().returncode == 1, "the agent does not answer that it has no key")
        subprocess.run(["ssh-add", key], check=True, env=env, capture_output=True)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.socket.parent)


@real_ssh
@pytest.mark.parametrize("kind", BOTH)
def test_a_site_that_asks_for_a_code_needs_a_person_and_is_not_asked_again_at_once(to, serve, kind, monkeypatch):
    monkeypatch.setattr(ssh, "PERSON_S", 3600.0)
    server = serve(options=["KbdInteractiveAuthentication yes", "AuthenticationMethods publickey,keyboard-interactive"])
    transport = to(kind, server.config)
    for _ in range(3):
        with pytest.raises(LoginNeeded, match="keyboard-interactive") as error:
            transport.run(["true"])
    assert error.value.command in words_of(error)
    assert "-MNf" in error.value.command
    log = (server.folder / "sshd.log").read_text()
    assert len(re.findall("(?i)^Partial publickey|Accepted publickey", log, re.MULTILINE)) <= 1, log


@real_ssh
@pytest.mark.parametrize("kind", BOTH)
def test_a_closed_port_is_away(to, server, tmp_path, kind):
    config = tmp_path / "closed"
    with reserved_port() as closed:
        port = closed.getsockname()[1]
        config.write_text(server.config.read_text().replace(f"Port {server.port}", f"Port {port}"))
        with pytest.raises(AwayError, match="Connection refused") as error:
            to(kind, config).run(["true"])
    assert not isinstance(error.value, LoginNeeded)
    assert "login" in words_of(error)


@real_ssh
@pytest.mark.parametrize("kind", BOTH)
def test_a_name_that_does_not_exist_is_refused(to, server, tmp_path, kind):
    config = tmp_path / "nameless"
    config.write_text(f"Host login\n    HostName not..a..name\n{server.config.read_text()}")
    with pytest.raises(BenchError, match=re.escape("not..a..name")) as error:
        to(kind, config).run(["true"])
    assert isinstance(error.value, RefusedError | AwayError)


@real_ssh
@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("text", [None, "Nonsense yes\n"])
def test_a_configuration_that_cannot_be_read_is_refused_in_sshs_words(to, tmp_path, kind, text):
    require("ssh", install=INSTALL)
    config = tmp_path / "config"
    if text:
        config.write_text(text)
    with pytest.raises(RefusedError, match="configuration cannot be used") as error:
        to(kind, config).run(["true"])
    assert str(config) in words_of(error)


# --- connections that break ------------------------------------------------------------------------------------------


@real_ssh
@pytest.mark.parametrize("kind", BOTH)
def test_after_a_restart_the_next_call_connects_again(to, serve, kind):
    server = serve()
    transport = to(kind, server.config)
    assert transport.run(["true"]).exit_code == 0
    server.stop()
    with pytest.raises(AwayError):
        transport.run(["true"])
    server.start()
    assert shell(transport, "exit 8").exit_code == 8


@real_ssh
@pytest.mark.parametrize("kind", BOTH)
def test_a_connection_lost_between_calls_is_not_noticed(to, serve, kind):
    server = serve()
    transport = to(kind, server.config)
    assert transport.run(["true"]).exit_code == 0
    server.drop()
    lives = Path(transport._own_socket).exists if kind == "openssh" else lambda: transport._connection.alive
    until(lambda: not lives(), "nobody hears of it here")
    assert shell(transport, "exit 8").exit_code == 8


@real_ssh
@pytest.mark.parametrize("kind", BOTH)
def test_a_connection_lost_in_mid_command_is_no_exit_code(to, serve, tmp_path, kind):
    server = serve()
    transport = to(kind, server.config)

    def cut() -> None:
        until((tmp_path / "begun").exists, "it did not begin")
        server.drop()

    cutter = threading.Thread(target=cut)
    cutter.start()
    with pytest.raises(AwayError, match="it is not known whether it was done") as error:
        shell(transport, f"touch {tmp_path}/begun; echo some; until [ -e {tmp_path}/over ]; do sleep 0.1; done")
    cutter.join()
    (tmp_path / "over").touch()
    assert "begun" in words_of(error), "which command"
    assert shell(transport, "exit 8").exit_code == 8


@real_ssh
@pytest.mark.parametrize("kind", BOTH)
def test_a_file_cut_on_the_way_is_not_there(to, serve, tmp_path, kind):
    (tmp_path / "tools").mkdir()
    server = serve(setenv={"HOME": str(tmp_path), "PATH": f"{tmp_path}/tools:{os.environ['PATH']}"})
    transport = to(kind, server.config)
    file_transfer.put(transport, b"old", f"{tmp_path}/there/file")
    slow = tmp_path / "tools" / "cat"  # it has only begun when the connection is lost, and then takes what there is
    waits = f"touch {tmp_path}/midway; for n in $(seq 600); do [ -e {tmp_path}/lost ] && break; sleep 0.1; done"
    slow.write_text(f"#!/bin/sh\nhead -c 1000000\n{waits}\nexec {shutil.which('cat')}\n")
    slow.chmod(0o755)

    def cut() -> None:
        until((tmp_path / "midway").exists, "it did not begin")
        assert list((tmp_path / "there").glob(".file.*")), "no draft"
        server.drop()
        (tmp_path / "lost").touch()

    cutter = threading.Thread(target=cut)
    cutter.start()
    with pytest.raises(AwayError):
        file_transfer.put(transport, b"x" * 20_000_000, f"{tmp_path}/there/file")
    cutter.join()
    assert (tmp_path / "there" / "file").read_bytes() == b"old"
    until(lambda: len(list((tmp_path / "there").iterdir())) == 1, "a draft is left")


@real_ssh
@pytest.mark.parametrize(
    ("kind", "when"),
    [
        ("openssh", "while"),
        ("paramiko", "before"),
        pytest.param("openssh", "before", marks=NIGHTLY),
        pytest.param("paramiko", "while", marks=NIGHTLY),
    ],
)
def test_a_machine_that_freezes_is_noticed(to, serve, tmp_path, kind, when, monkeypatch):
    """ssh itself says so; paramiko's command is over its limit."""
    monkeypatch.setattr(ssh, "PULSE_S", 1.0)  # ten times faster than it is
    server = serve()
    transport = to(kind, server.config)

    def answers() -> bool:
        with contextlib.suppress(AwayError):  # it may be slow, which with such a pulse looks frozen
            return shell(transport, "exit 8").exit_code == 8
        return False

    until(answers, "it does not answer")
    monkeypatch.setattr(ssh, "CONNECT_S", 3.0)
    monkeypatch.setattr(framing, "START_LIMIT_S", 3.0)
    monkeypatch.setattr(framing, "GRACE_S", 0.0)
    freezer = threading.Thread(target=lambda: (until((tmp_path / "begun").exists, "never"), server.pause()))
    if when == "before":
        server.pause()
    else:
        freezer.start()
    with pytest.raises(AwayError) as error:  # before `over` is written, without which the command never ends
        shell(transport, f"touch {tmp_path}/begun; until [ -e {tmp_path}/over ]; do sleep 0.1; done", timeout_s=10)
    assert not isinstance(error.value, CommandTimeout)
    if when == "while":
        (tmp_path / "begun").touch()  # it may have been slow, and looked frozen before it was
        freezer.join()
    (tmp_path / "over").touch()
    monkeypatch.setattr(ssh, "CONNECT_S", 15.0)
    monkeypatch.setattr(framing, "START_LIMIT_S", 30.0)
    server.resume()
    until(answers, "it does not come back")


@real_ssh
@pytest.mark.parametrize("make", [OpensshTransport, ParamikoTransport])
def test_a_machine_that_gives_no_session_is_away(make, serve, sockets):
    waits = []
    server = serve(options=["MaxSessions 0"])
    platform = Platform(name="there", transport="openssh", host="login", ssh_config=str(server.config))
    transport = make(platform, sleep=waits.append)
    with pytest.raises(AwayError, match="gives no session, the command was not sent"):
        transport.run(["true"])
    assert len(waits) > 3
    assert sum(waits) > 10
    transport.close()


# --- ssh's own connections -------------------------------------------------------------------------------------------


@pytest.fixture
def opened(serve, tmp_path, sockets):
    """A connection that a person has opened: the server, and its configuration with ControlPath."""
    server = serve()
    config = server.client_config("person", more=f"Host *\n    ControlPath {sockets}/%C\nMatch all\n")
    subprocess.run(["ssh", "-F", config, "-MNf", "login"], check=True, stderr=subprocess.DEVNULL)
    yield server, config
    subprocess.run(["ssh", "-F", config, "-O", "exit", "login"], check=False, capture_output=True)


def logins(server: Sshd) -> int:
    return (server.folder / "sshd.log").read_text().count("Accepted publickey")


@real_ssh
def test_the_persons_connection_is_used_and_left_open(to, opened):
    server, config = opened
    server.stop(sessions=False)  # nobody can log in any more
    transport = to("openssh", config)
    with ThreadPoolExecutor(32) as pool:
        codes = list(pool.map(lambda n: shell(transport, f"exit {n}").exit_code, range(32)))
    assert codes == list(range(32))
    transport.close()
    assert to("openssh", config).run(["true"]).exit_code == 0
    assert logins(server) == 1


@real_ssh
def test_a_dead_connection_of_the_user_is_reported_with_the_command_that_closes_it(to, opened, monkeypatch):
    monkeypatch.setattr(framing, "START_LIMIT_S", 1.0)
    server, config = opened
    transport = to("openssh", config)
    server.pause()
    with pytest.raises(AwayError, match="-O exit login"):
        transport.run(["true"])
    monkeypatch.setattr(framing, "START_LIMIT_S", 60.0)
    server.resume()
    assert shell(transport, "exit 8").exit_code == 8


@real_ssh
def test_a_connection_without_a_free_session_is_waited_for_and_never_gone_around(to, opened):
    server, config = opened
    others = [
        subprocess.Popen(["ssh", "-F", config, "login", "echo; sleep 2"], stdout=subprocess.PIPE) for _ in range(10)
    ]
    for other in others:
        assert other.stdout.readline() == b"\n"
    assert shell(to("openssh", config), "exit 5").exit_code == 5
    for other in others:
        other.stdout.close()
        assert other.wait() == 0
    assert logins(server) == 1


@real_ssh
def test_the_command_of_the_error_opens_the_connection_that_is_used_next(to, serve):
    server = serve(options=["KbdInteractiveAuthentication yes", "AuthenticationMethods publickey,keyboard-interactive"])
    now = [0.0]
    platform = Platform(name="there", transport="openssh", host="login", ssh_config=str(server.config))
    transport = OpensshTransport(platform, clock=lambda: now[0])
    with pytest.raises(LoginNeeded) as error:
        transport.run(["true"])
    server.stop()
    (server.folder / "sshd_config").write_text(
        (server.folder / "sshd_config").read_text().replace("publickey,keyboard-interactive", "publickey")
    )
    server.start()
    command = shlex.split(error.value.command)  # the person's code is what we cannot type here
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    server.stop(sessions=False)
    assert transport.run(["true"]).exit_code == 0
    transport.close()
    path = next(word.partition("=")[2] for word in command if word.startswith("ControlPath="))
    subprocess.run(["ssh", "-S", path, "-O", "exit", "login"], check=True, capture_output=True)


@real_ssh
def test_a_folder_of_sockets_that_others_could_write_is_not_used(to, server, sockets):
    folder = sockets / f"hpc-ml-bench-{os.getuid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    with pytest.raises(RefusedError, match="yours alone"):
        to("openssh", server.config).run(["true"])


# --- ssh's files, read without ssh -----------------------------------------------------------------------------------


@real_ssh
def test_paramiko_follows_include_where_there_is_ssh_and_says_so_where_there_is_none(to, server, tmp_path, monkeypatch):
    config = tmp_path / "outer"
    config.write_text(f"Include {server.config}\n")
    assert to("paramiko", config, "inner").run(["true"]).exit_code == 0
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RefusedError, match="Include"):
        to("paramiko", config).run(["true"])
    assert to("paramiko", server.config, "inner").run(["true"]).exit_code == 0
    address = f"{server.user}@{LOOPBACK}:{server.port}"
    assert to("paramiko", server.config, address).run(["true"]).exit_code == 0
    with pytest.raises(RefusedError, match="no ssh here"):
        to("openssh", server.config).run(["true"])


@real_ssh
def test_paramiko_goes_through_a_proxy_command(to, server, tmp_path):
    config = tmp_path / "proxied"
    proxy = f"Host login\n    ProxyCommand ssh -F {server.config} -W %h:%p gate\n"
    config.write_text(proxy + server.config.read_text())
    transport = to("paramiko", config)
    assert shell(transport, "cat; exit 4", input=b"x" * 1_000_000).stdout == b"x" * 1_000_000
    transport.close()
    until(lambda: not running(f"{server.config}\0-W"), "the proxy still runs")
    config.write_text(proxy.replace("ssh -F", "false") + server.config.read_text())
    with pytest.raises(AwayError, match="no connection"):
        to("paramiko", config).run(["true"])


@real_ssh
@pytest.mark.parametrize("kind", ["hashed", "pattern", "second of a kind", "beside an authority"])
def test_known_hosts_matches_names_patterns_and_hashes(to, server, tmp_path, kind):
    name = f"[{LOOPBACK}]:{server.port}"
    key = " ".join(server.host_key.with_suffix(".pub").read_text().split()[:2])
    other = " ".join(make_key(tmp_path / "other").with_suffix(".pub").read_text().split()[:2])
    file = tmp_path / "known"
    file.write_text(
        {
            "hashed": f"{name} {key}\n",
            "pattern": f"elsewhere,[127.0.*]:* {key}\n",
            "second of a kind": f"# comment\n\n{name} {other}\n{name} {key}\n",
            "beside an authority": f"@cert-authority * {other} c\nbroken line\n{name} ssh-new AAAA\n{name} {key}\n",
        }[kind]
    )
    if kind == "hashed":
        subprocess.run(["ssh-keygen", "-H", "-f", file], check=True, capture_output=True)
        assert name not in file.read_text()
    config = server.client_config("known", known_hosts=file)
    assert to("paramiko", config).run(["true"]).exit_code == 0


@real_ssh
def test_a_revoked_host_key_is_refused(to, server, tmp_path):
    file = tmp_path / "known"
    key = server.host_key.with_suffix(".pub").read_text()
    file.write_text(f"{server.known_hosts.read_text()}@revoked * {key}")
    config = server.client_config("revoked", known_hosts=file)
    for kind in BOTH:
        with pytest.raises(RefusedError, match="host key is revoked"):
            to(kind, config).run(["true"])


@real_ssh
@pytest.mark.parametrize(("kind", "named"), [("openssh", True), ("paramiko", False), ("paramiko", True)])
def test_a_certificate_logs_in(to, serve, tmp_path, kind, named):
    authority, key = make_key(tmp_path / "authority"), make_key(tmp_path / "mine")
    server = serve(options=[f"TrustedUserCAKeys {authority}.pub"])
    (server.folder / "authorized_keys").write_text("")
    sign = ["ssh-keygen", "-q", "-s", authority, "-I", "me", "-n", server.user, f"{key}.pub"]
    subprocess.run(sign, check=True, capture_output=True)
    if named:
        shutil.move(f"{key}-cert.pub", tmp_path / "elsewhere.pub")
    more = f"CertificateFile {tmp_path}/elsewhere.pub\n" if named else ""
    assert to(kind, server.client_config("certified", key=key, more=more)).run(["true"]).exit_code == 0


@real_ssh
@NIGHTLY
def test_jump_hosts_that_lead_in_a_circle_are_refused(to, server, tmp_path):
    config = tmp_path / "circle"
    config.write_text(f"Host login\n    ProxyJump gate\nHost gate\n    ProxyJump login\n{server.config.read_text()}")
    with pytest.raises(RefusedError, match="jump hosts"):
        to("paramiko", config).run(["true"])
