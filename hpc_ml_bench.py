"""What `pip install -e .` adds to pytest: tests of the suite and of a site run from any folder.

In the sessions of other projects it does nothing: it has no options, marks or fixtures and imports nothing of ours.
`-p no:hpc_ml_bench` switches it off.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
INI = ROOT / "pytest.ini"
WORKLOAD = b"mark.workload("


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Begin the session again with the suite's pytest.ini, if it is one of ours and pytest has found no configuration.

    pytest looks for its configuration beside the files that are named, and those of a site lie elsewhere.
    """
    config = pluginmanager.get_plugin("pytestconfig")
    words = config.invocation_params.args
    is_command = bool(words) and sys.orig_argv[-len(words) :] == list(words)
    if not is_command or not (ROOT / "harness").is_dir():
        return
    if config.inipath == INI or pluginmanager.hasplugin("harness.plugin"):  # it is one of ours already
        return
    more = options_of(words, config.invocation_params.dir, has_configuration=config.inipath is not None)
    if more is not None:
        start = sys.orig_argv[: len(sys.orig_argv) - len(words)]
        os.execv(sys.executable, [*start, *more, *words])


def options_of(words: Sequence[str], folder: Path, *, has_configuration: bool) -> list[str] | None:
    """Return what makes a command in this folder a session of ours; None for a session of another project."""
    options = [f"--config-file={INI}"]
    if any(word == "--site" or word.startswith("--site=") for word in words):
        return options
    named = [folder / word.partition("::")[0] for word in words if not word.startswith("-")]
    files = [file for file in named if file.suffix == ".py" and file.is_file()]
    is_here = all(path.resolve().is_relative_to(folder) for path in named if path.exists())
    if is_here and not has_configuration:  # in a site's folder, all of its tests are meant
        files += sorted(folder.glob("test_*.py"))
    for file in files:
        if WORKLOAD in file.read_bytes():
            is_elsewhere = not file.resolve().is_relative_to(ROOT)
            if is_elsewhere and not os.environ.get("HPC_ML_BENCH_SITE"):
                options.append(f"--site={file.parent}")
            return options
    if folder.is_relative_to(ROOT) and not has_configuration:
        return options
    return None
