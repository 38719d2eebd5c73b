"""The few Linux system calls that containers are made of and that the standard library lacks."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
from pathlib import Path

NEW_MOUNTS, NEW_HOST_NAME, NEW_USERS, NEW_PIDS = 0x00020000, 0x04000000, 0x10000000, 0x20000000
READ_ONLY, NO_SETUID, REMOUNT, BIND, RECURSIVE, PRIVATE, DETACH = 1, 2, 32, 4096, 16384, 1 << 18, 2
_PARENT_DEATH, _KEEP_CAPABILITIES, _AMBIENT, _AMBIENT_RAISE, _NO_NEW_PRIVILEGES = 1, 8, 47, 2, 38
_READ_EVERYTHING = 2  # CAP_DAC_READ_SEARCH
_CAPABILITIES_3 = 0x20080522
CLONE = {"x86_64": 56}.get(platform.machine(), 220)  # its number is the same everywhere else
_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), what)


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def fork(flags: int) -> int:
    """As os.fork(), the child in new namespaces. For a process without threads whose child soon calls exec."""
    pid = int(_libc.syscall(CLONE, flags | signal.SIGCHLD, 0, 0, 0, 0))
    _checked(pid, "clone")
    return pid


def mount(source: str, target: Path | str, kind: str = "", flags: int = 0, data: str = "") -> None:
    words = (source.encode(), str(target).encode(), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None)
    _checked(_libc.mount(*words), f"mount {source} on {target}")


def bind(source: str, target: Path | str, *, read_only: bool = False, recursive: bool = False) -> None:
    """target must exist, and be a file where source is one."""
    mount(source, target, flags=BIND | (RECURSIVE if recursive else 0))
    if read_only:
        mount("none", target, flags=BIND | REMOUNT | READ_ONLY)


def unmount(target: str) -> None:
    _checked(_libc.umount2(target.encode(), DETACH), f"umount {target}")


def set_host_name(name: str) -> None:
    _checked(_libc.sethostname(name.encode(), len(name.encode())), "sethostname")


def die_with_parent() -> None:
    """SIGKILL for this process as soon as its parent is gone."""
    _checked(_libc.prctl(_PARENT_DEATH, 9, 0, 0, 0), "prctl")


def forbid_new_privileges() -> None:
    _checked(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")


def become(uid: int, gid: int, groups: list[int]) -> None:
    """That user, who may still read everything: in an image all may read the software, here it can be a user's own."""
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    if not uid:
        return
    _checked(_libc.prctl(_KEEP_CAPABILITIES, 1, 0, 0, 0), "prctl")
    os.setresuid(uid, uid, uid)
    bit = 1 << _READ_EVERYTHING
    header, data = struct.pack("Ii", _CAPABILITIES_3, 0), struct.pack("6I", bit, bit, bit, 0, 0, 0)
    _checked(_libc.capset(header, data), "capset")
    _checked(_libc.prctl(_AMBIENT, _AMBIENT_RAISE, _READ_EVERYTHING, 0, 0), "prctl")
