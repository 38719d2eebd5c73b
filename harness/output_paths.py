"""Where a session writes. A folder that cannot be written is refused before a job is submitted."""

from __future__ import annotations

import tempfile
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


def refuse_unwritable(runs: Path) -> None:
    """Try the folder of the runs. Raises UsageError if it cannot be written.

    Files of pytest and of its other plugins are not tried: `--resume` writes them, if they could not be written.
    """
    try:
        runs.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=runs, prefix=".try.") as file:
            file.write(bytes(4096))
    except OSError as error:
        raise unwritable(runs, error) from None


def unwritable(runs: Path, error: OSError) -> pytest.UsageError:
    """The error for a folder in which the evidence of jobs has no place."""
    return pytest.UsageError(
        f"{runs}: the evidence of jobs cannot be written there ({error.strerror or error}), so nothing was submitted; "
        "--runs-dir names another place"
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
