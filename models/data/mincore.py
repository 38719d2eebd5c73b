"""How many bytes of a file are in this machine's memory, as mincore(2) reports. Linux only.

Nothing is claimed where it cannot be known. Since Linux 5.2 the kernel reports a file only to its owner and to users
who may write it. ZFS and IBM Storage Scale keep file contents in memory of their own. gVisor calls every page resident.
NFS, Lustre, Ceph and FUSE read through the page cache like a disk; what their servers, or the process behind FUSE, hold
in memory cannot be seen and counts as storage. So do a disk's own cache and DAX, which needs no page cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from typing import Any, Iterator, Tuple

from models.data.file_list import printable
from models.host import read_text

OWN_CACHE = {0x2FC12FC1: "ZFS", 0x47504653: "IBM Storage Scale"}  # by f_type of statfs(2)
PROT_READ, MAP_SHARED, MAP_PRIVATE, MAP_ANONYMOUS = 1, 1, 2, 0x20
MAP_FAILED = ctypes.c_void_p(-1).value
CAP_FOWNER = 3
LOWEST_BIT = bytes(value & 1 for value in range(256))  # mincore leaves the other bits of a page's byte undefined


class NotKnown(Exception):
    """It cannot be known; the text says why."""


def of_file(path: bytes) -> Tuple[int, int]:
    """Return (bytes in the page cache, all bytes) of one file, without reading it.

    Raises NotKnown; OSError for a file that cannot be opened.
    """
    with opened(path) as descriptor:
        try:
            status = os.fstat(descriptor)
            kind = file_system(descriptor)
            if kind in OWN_CACHE:
                raise NotKnown(f"{OWN_CACHE[kind]} keeps what is read in memory of its own")
            if not _may_know(path, status.st_uid):
                raise NotKnown(
                    f"{printable(path)} belongs to user {status.st_uid}, and the kernel tells only a file's owner, and "
                    f"who may write it, whether it is in memory"
                )
            if not status.st_size:
                return 0, 0
            return _in_core(descriptor, status.st_size), status.st_size
        except OSError as error:  # e.g. a file system whose files cannot be mapped
            raise NotKnown(f"{printable(path)} cannot be checked ({error.strerror})") from None


@functools.lru_cache(maxsize=None)
def check_kernel() -> None:
    """Check that the kernel does not call a new page resident. Raises NotKnown."""
    if not sys.platform.startswith("linux"):
        raise NotKnown(f"this is {sys.platform}, and only Linux tells which files are in memory")
    try:
        untouched = _pages_in_core(os.sysconf("SC_PAGE_SIZE"), MAP_PRIVATE | MAP_ANONYMOUS, -1)
    except OSError as error:
        raise NotKnown(f"mincore does not work here ({error.strerror})") from None
    if untouched != b"\0":
        raise NotKnown("this kernel calls every page resident, as gVisor's does")


def file_system(descriptor: int) -> int:
    """Return the magic number of an open file's file system. Raises OSError."""
    answer = (ctypes.c_ulong * 64)()  # more than a struct statfs, whose first member it is
    if _libc().fstatfs(descriptor, ctypes.byref(answer)):
        raise _error()
    return answer[0] & 0xFFFFFFFF


@contextlib.contextmanager
def opened(path: bytes) -> Iterator[int]:
    """Yield a descriptor to read from. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _in_core(descriptor: int, size: int) -> int:
    pages = _pages_in_core(size, MAP_SHARED, descriptor)
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return pages.count(1) * page_bytes - pages[-1] * (len(pages) * page_bytes - size)  # the last page is seldom full


def _pages_in_core(size: int, flags: int, descriptor: int) -> bytes:
    """Return one byte for each page: 1 if it is in memory, else 0. Raises OSError."""
    address = _libc().mmap(None, size, PROT_READ, flags, descriptor, 0)
    if address == MAP_FAILED:
        raise _error()
    try:
        vector = ctypes.create_string_buffer(-(-size // os.sysconf("SC_PAGE_SIZE")))
        if _libc().mincore(address, size, vector):
            raise _error()
        return vector.raw.translate(LOWEST_BIT)
    finally:
        _libc().munmap(address, size)


def _may_know(path: bytes, owner: int) -> bool:
    """Tell whether mincore reports the file to this process.

    It does if the process owns the file, may write it, or has CAP_FOWNER over its owner. To other processes mincore
    calls all pages resident (can_do_mincore in Linux's mm/mincore.c).
    """
    if owner == os.geteuid() or os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        return True
    unmapped_user = int(read_text("/", "proc/sys/fs/overflowuid") or 65534)  # not known in this user namespace
    if owner == unmapped_user:
        return False
    for line in read_text("/", "proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_FOWNER & 1)
    return False


@functools.lru_cache(maxsize=None)
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    address = ctypes.c_void_p
    size = ctypes.c_size_t
    integer = ctypes.c_int
    libc.mmap.restype = address
    libc.mmap.argtypes = [address, size, integer, integer, integer, ctypes.c_long]
    libc.munmap.argtypes = [address, size]
    libc.mincore.argtypes = [address, size, ctypes.c_char_p]
    libc.fstatfs.argtypes = [integer, address]
    return libc


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
