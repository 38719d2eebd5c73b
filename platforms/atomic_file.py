"""Write a file so that every reader sees the old content or the whole new content, and never a part of it.

The content goes into a draft beside the file, and the draft is then renamed. Code that travels alone
(supervisor.py, models/) has its own copy of this.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)  # the system names no file then


def write_text(path: Path, text: str, *, sync: bool = False) -> None:
    """Like `write_bytes`, in UTF-8. Surrogate escapes become the bytes that they stand for."""
    write_bytes(path, text.encode("utf-8", "surrogateescape"), sync=sync)


def write_bytes(path: Path, content: bytes | Iterable[bytes], *, sync: bool = False, mode: int | None = None) -> None:
    """Replace the content of a file, or create the file; its folder must exist.

    Args:
        content: the bytes, or parts of them that come one after the other, for files that memory does not hold.
        sync: flush the content to the disk before the rename, so that a power failure cannot leave an empty file.
        mode: permission bits of the new file; None leaves them to the umask.

    Raises:
        OSError: nothing has changed then. It names the file, not its draft.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.writelines([content] if isinstance(content, bytes) else content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if mode is not None:
            draft.chmod(mode)
        draft.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError) and (str(error.filename) == str(draft) or error.errno in FULL):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk: a file that was created or renamed there survives a power failure.

    Raises OSError.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
