"""Where a session writes. A folder that cannot be written, and a comparison without earlier numbers, are refused before
a job is submitted."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import options

DEFAULT_STORAGE = "file://./.benchmarks"  # pytest-benchmark's, relative to the working directory
DEFAULT_CACHE = ".pytest_cache"


def settle(config: pytest.Config) -> None:
    """Give pytest-benchmark and pytest's cache (--lf) their folders, unless they are given others."""
    home = options.home(config)
    if config.getoption("benchmark_storage", None) == DEFAULT_STORAGE:
        config.option.benchmark_storage = f"file://{home / '.benchmarks'}"
    if config.pluginmanager.hasplugin("cacheprovider") and config.getini("cache_dir") == DEFAULT_CACHE:
        config._inicache["cache_dir"] = str(home / DEFAULT_CACHE)


def refuse_unwritable(config: pytest.Config, runs: Path) -> None:
    """Try every place that results will be written to. Raises UsageError with the first that cannot be."""
    _try_folder(runs, "--runs-dir", "the evidence of jobs")
    storage = str(config.getoption("benchmark_storage", None) or "").removeprefix("file://")
    saves = config.getoption("benchmark_save", None) or config.getoption("benchmark_autosave", None)
    if saves and "://" not in storage:
        _try_folder(Path(storage), "--benchmark-storage", "saved numbers")
    table = config.getoption("benchmark_json", None)
    if table:
        try_file(Path(table), "--benchmark-json")
    report = config.getoption("xmlpath", None)
    if report:
        path = Path(os.path.expandvars(report)).expanduser()
        _try_folder(path.parent, "--junitxml", "the report")
        try_file(path, "--junitxml")


def without_reference(config: pytest.Config, tests: Sequence[str]) -> list[str]:
    """The tests that --benchmark-compare-fail has no earlier numbers for.

    Raises UsageError where it has none for any of them: its verdict would say nothing about the machine.
    """
    session = getattr(config, "_benchmarksession", None)
    if session is None or not config.getoption("benchmark_compare_fail"):
        return []
    if not config.getoption("benchmark_compare"):
        raise pytest.UsageError(
            "--benchmark-compare-fail compares with what --benchmark-compare names: give both. Nothing was submitted"
        )
    known = {test for numbers in session.compared_mapping.values() for test in numbers}
    unchecked = [test for test in tests if test not in known]
    if len(unchecked) == len(tests):
        raise pytest.UsageError(
            f"--benchmark-compare-fail: {session.storage} has no earlier numbers of these tests, so nothing was "
            f"submitted. The first are saved with --benchmark-autosave and without both --benchmark-compare options"
        )
    return unchecked


def _try_folder(folder: Path, option: str, what: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".try.") as file:
            file.write(bytes(4096))
    except OSError as error:
        raise unwritable(folder, error, option, what) from None


def unwritable(
    folder: Path, error: OSError, option: str = "--runs-dir", what: str = "the evidence of jobs"
) -> pytest.UsageError:
    """The error for a folder in which results have no place."""
    why = error.strerror or error
    return pytest.UsageError(
        f"{folder}: {what} cannot be written there ({why}), so nothing was submitted; {option} names another place"
    )


def try_file(path: Path, option: str) -> None:
    """Raise UsageError for a file that cannot be written. `option` is the one that names it."""
    is_new = not path.exists()
    try:
        with path.open("ab"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise pytest.UsageError(
            f"{option}: {path} cannot be written ({error.strerror or error}), so nothing was submitted"
        ) from None
