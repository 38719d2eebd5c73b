"""MANIFEST: the size and the sha256 of every other file of a bundle. The digest of a bundle is the sha256 of this file.

`sha256sum -c MANIFEST` checks the files without this suite. It passes over lines that begin with `#`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass

from platforms.job import RefusedError

NAME = "MANIFEST"
VERSION = 1
_HEAD = "# hpc-ml-bench bundle, version "
_REST = "\n# sha256 and path of each file, as `sha256sum -c MANIFEST` reads them; above each line the file's size\n"
_FILE = re.compile(r"# (\d+) bytes\n([0-9a-f]{64})  ([!-~]+)\n")


class LaterVersion(RefusedError):
    """A later version of the suite has made the bundle."""


@dataclass(frozen=True)
class Listed:
    """What the manifest says of a file: its size in bytes, and its sha256 in hexadecimal digits."""

    size: int
    sha256: str


def listed(content: bytes) -> Listed:
    return Listed(len(content), hashlib.sha256(content).hexdigest())


def manifest_text(files: Mapping[str, Listed]) -> str:
    """The text of the manifest. The order of the files is that of their names."""
    lines = [f"# {file.size} bytes\n{file.sha256}  {name}\n" for name, file in sorted(files.items())]
    return f"{_HEAD}{VERSION}{_REST}{''.join(lines)}"


def parsed_manifest(content: bytes) -> dict[str, Listed]:
    """Read what `manifest_text` has written.

    Raises:
        LaterVersion: it has another version.
        ValueError: it is not what `manifest_text` writes, to the byte.
    """
    text = content.decode("utf-8", "replace")
    version = re.match(re.escape(_HEAD) + r"(\d{1,6})\n", text)
    if version and int(version[1]) > VERSION:
        raise LaterVersion(
            f"it is a bundle of version {version[1]}, and this suite reads version {VERSION}: update the suite"
        )
    files = {name: Listed(int(size), sha256) for size, sha256, name in _FILE.findall(text)}
    if manifest_text(files) != text:
        raise ValueError("a line of it is not what bundle writes")
    return files


def digest(content: bytes) -> str:
    """The digest of a bundle, from the bytes of its manifest."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
