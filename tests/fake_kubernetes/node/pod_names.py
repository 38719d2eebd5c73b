"""The names that pods have by a headless Service: a `getent` for containers, which knows those of pods on a node."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fake_kubernetes.store.trees import Tree

PATH = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GETENT = """#!/bin/sh
[ -e "{names}/$2" ] && echo "127.0.0.1 $2"
"""


class PodNames:
    """`path` is the PATH of containers: first the getent, then this Python, then the machine's programs."""

    def __init__(self, folder: Path) -> None:
        self._names = folder / "names"
        self._names.mkdir()
        (folder / "bin").mkdir()
        program = folder / "bin" / "getent"
        program.write_text(GETENT.format(names=self._names))
        program.chmod(0o755)
        self.path = f"{program.parent}:{PATH}"

    def add(self, pod: Tree) -> None:
        if name := _name(pod):
            (self._names / name).touch()

    def remove(self, pod: Tree) -> None:
        if name := _name(pod):
            (self._names / name).unlink(missing_ok=True)


def _name(pod: Tree) -> str:
    spec = pod["spec"]
    return f"{spec['hostname']}.{spec['subdomain']}" if spec.get("hostname") and spec.get("subdomain") else ""
