"""The stand-ins of vendors' packages, which jobs import by their PYTHONPATH and tests for as long as they need them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

CEREBRAS = Path(__file__).parent / "fake_cerebras"
POPLAR = Path(__file__).parent / "poplar_sdk"


@contextlib.contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Let this process import the packages of a folder. In the end it knows nothing of them."""
    ours = {path.stem for path in folder.iterdir()}
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
            del sys.modules[name]
