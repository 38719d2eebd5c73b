"""What happens in a new process between fork and exec: namespaces, a root of its own, mounts, user, command.

The root is the machine's own, copied on write into memory: a container may write anywhere and leaves nothing behind;
mount points that do not exist here exist in there only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import stat
from pathlib import Path
from typing import Any

import syscalls

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
SYSTEM = ("dev", "proc", "sys", "tmp")
STANDARD = {
    "bin",
    "dev",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "media",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
}
STANDARD |= {"srv", "sys", "usr", "var"}
SHM_BYTES = 64 << 20  # what Kubernetes gives


class CannotStart(Exception):
    """Why, as the runtime says it."""


def start(spec: dict[str, Any], *, isolated: bool) -> None:
    """Becomes the container's command. Returns never; raises CannotStart or OSError."""
    os.setsid()
    syscalls.die_with_parent()
    Path("/proc/self/oom_score_adj").write_text("1000")
    if isolated:
        enter(spec)
    Path(spec["cwd"]).mkdir(parents=True, exist_ok=True)
    os.chdir(spec["cwd"])
    name = spec["argv"][0]
    program = _found(name, spec["env"].get("PATH", ""))
    if isolated:
        _drop(spec)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, a container's command expects them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, spec["argv"], spec["env"])
    except OSError as error:
        words = _words(error)
        raise CannotStart(words if error.errno == errno.ENOEXEC else f'exec: "{name}": {words}') from error


def _words(error: OSError) -> str:
    return (error.strerror or "").lower()


def enter(spec: dict[str, Any]) -> None:
    """A root and a host name of its own. Needs a process that may mount; OSError."""
    syscalls.unshare(syscalls.NEW_MOUNTS | syscalls.NEW_HOST_NAME)
    syscalls.mount("none", "/", flags=syscalls.PRIVATE | syscalls.RECURSIVE)
    syscalls.set_host_name(spec["hostname"])
    root = _overlay(Path(spec["folder"]))
    _system(root, spec)
    _hide(root, spec.get("hidden", []))
    for entry in sorted(spec["mounts"], key=lambda entry: str(entry["target"]).count("/")):
        _mount(root, entry)
    if spec.get("read_only_root"):
        syscalls.mount("none", root, flags=syscalls.BIND | syscalls.REMOUNT | syscalls.READ_ONLY)
    os.chroot(root)
    os.chdir("/")


def _overlay(folder: Path) -> Path:
    """A writable copy of / below folder, which only this mount namespace sees."""
    syscalls.mount("none", folder, "tmpfs", data="mode=755")
    root = folder / "root"
    root.mkdir()
    try:
        _copy_on_write(folder, Path("/"), root)
    except OSError:  # an unprivileged user may not take all mounts below / together
        _patchwork(folder, root)
    return root


def _copy_on_write(folder: Path, lower: Path, target: Path) -> None:
    upper, work = folder / f"upper-{lower.name}", folder / f"work-{lower.name}"
    upper.mkdir()
    work.mkdir()
    syscalls.mount("none", target, "overlay", data=f"lowerdir={lower},upperdir={upper},workdir={work}")


def _patchwork(folder: Path, root: Path) -> None:
    """Each folder of / by itself; one that holds other mounts (/mnt, /run) is empty, as it is in an image."""
    shutil.rmtree(folder / "upper-")
    shutil.rmtree(folder / "work-")
    for entry in Path("/").iterdir():
        target = root / entry.name
        if entry.is_symlink():
            target.symlink_to(entry.readlink())
        elif entry.is_dir():
            target.mkdir()
            if entry.name not in SYSTEM:
                with contextlib.suppress(OSError):
                    _copy_on_write(folder, entry, target)


def _system(root: Path, spec: dict[str, Any]) -> None:
    syscalls.mount("proc", root / "proc", "proc")
    syscalls.bind("/sys", root / "sys", recursive=True)
    devices = root / "dev"
    syscalls.mount("none", devices, "tmpfs", data="mode=755")
    for name in DEVICES:
        (devices / name).touch()
        syscalls.bind(f"/dev/{name}", devices / name)
    for name, number in {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}.items():
        (devices / name).symlink_to(f"/proc/self/fd{number}")
    (devices / "shm").mkdir()
    syscalls.mount("none", devices / "shm", "tmpfs", data=f"mode=1777,size={SHM_BYTES}")
    for name in ("hostname", "hosts"):
        (root / "etc" / name).unlink(missing_ok=True)
    (root / "etc/hostname").write_text(spec["hostname"] + "\n")
    (root / "etc/hosts").symlink_to(spec["hosts"])  # into a mounted folder: the file can be replaced as a whole


def _hide(root: Path, paths: list[str]) -> None:
    """What no image would hold: other folders of / than a Linux has, and what is named."""
    others = [path for path in root.iterdir() if path.is_dir() and not path.is_symlink() and path.name not in STANDARD]
    for path in (*others, *(root / each.lstrip("/") for each in paths)):
        if path.is_dir():
            syscalls.mount("none", path, "tmpfs", data="mode=755")


def _mount(root: Path, entry: dict[str, Any]) -> None:
    target = root / entry["target"].lstrip("/")
    if Path(entry["source"]).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.touch()
    syscalls.bind(entry["source"], target, read_only=bool(entry.get("read_only")))


def _drop(spec: dict[str, Any]) -> None:
    if spec.get("no_new_privileges"):
        syscalls.forbid_new_privileges()
    if (spec.get("uid") or spec.get("gid") or spec.get("groups")) and _are_other_users():
        syscalls.become(spec.get("uid", 0), spec.get("gid", 0), spec.get("groups", []))
        syscalls.die_with_parent()  # which a change of user forgets


def _are_other_users() -> bool:
    """Not in the namespace of a normal user, where root is the only one: a container stays that."""
    ranges = Path("/proc/self/uid_map").read_text().splitlines()
    return any(int(line.split()[2]) > 1 for line in ranges)


def _found(name: str, path: str) -> str:
    """The program's file, in the container's own root. CannotStart in the runtime's words."""
    if "/" in name:
        try:
            mode = Path(name).stat().st_mode
        except OSError as error:
            raise CannotStart(f'exec: "{name}": stat {name}: {_words(error)}') from error
        if stat.S_ISDIR(mode):
            raise CannotStart(f'exec: "{name}": is a directory')
        if not mode & 0o111:
            raise CannotStart(f'exec: "{name}": permission denied')
        return name
    for folder in path.split(":"):
        candidate = Path(folder or ".") / name
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    raise CannotStart(f'exec: "{name}": executable file not found in $PATH')
