"""Chooses the files to collect: the suite's benchmarks and the tests in the site's folder.

A test of the site has the id `site/test_mine.py::test_mine[…]` on every machine, wherever the site's folder is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.naming import WANTED
from platforms import checkout

SITE = "site"


@dataclass(frozen=True)
class TestFiles:
    """The two folders of tests, the checkout and the site's. Both paths are absolute."""

    root: Path
    site: Path

    def of_test(self, test: str) -> Path:
        """Find the file of a test by its id."""
        file = test.partition("::")[0]
        folder, _, rest = file.partition("/")
        return self.site / rest if folder == SITE else self.root / file

    def is_of_site(self, path: Path) -> bool:
        """Tell whether a path belongs to the site. Where one folder contains the other, the inner one counts."""
        if not path.is_relative_to(self.site):
            return False
        if not path.is_relative_to(self.root):
            return True
        return self.site != self.root and self.site.is_relative_to(self.root)

    def id_of(self, path: Path) -> str | None:
        """Write how the ids in a file of the site begin. Returns None for any other file."""
        if not self.is_of_site(path):
            return None
        return f"{SITE}/{path.relative_to(self.site).as_posix()}"

    def is_above_site(self, path: Path) -> bool:
        """Tell whether a folder outside of the checkout contains the site's folder, or is it."""
        return self.site.is_relative_to(path) and not path.is_relative_to(self.root)

    def of_site(self) -> list[Path]:
        """List the site's own tests."""
        return sorted(path for path in self.site.glob("test_*.py") if self.is_of_site(path))

    def resolve(self, typed: Path) -> Path:
        """Turn a typed path into one below the checkout or the site's folder, which `site/` of the checkout stands for.

        Raises UsageError for a path in neither folder: its ids would depend on the current directory.
        """
        if typed.is_relative_to(self.root / SITE):
            return self.site / typed.relative_to(self.root / SITE)
        for folder in (self.site, self.root):
            if typed.is_relative_to(folder):
                return typed
        for folder in (self.site, self.root):
            if typed.resolve().is_relative_to(folder.resolve()):
                return folder / typed.resolve().relative_to(folder.resolve())
        if typed.exists():
            raise pytest.UsageError(
                f"{typed} lies neither in {self.root} nor in the site's folder, {self.site}: "
                f"move it there, or name its folder by --site=DIR"
            )
        return typed


FILES = pytest.StashKey[TestFiles]()


def choose(config: pytest.Config, site: Path) -> None:
    """Turn the typed arguments into files and tests.

    No argument, or the suite's folder, stands for all of its benchmarks and all tests of the site; no argument in the
    site's folder for its tests. An id stands for one test, in every current directory. --resume has chosen its tests
    already. Raises UsageError.
    """
    here = config.invocation_params.dir
    files = TestFiles(config.rootpath, checkout.absolute(here / site))
    config.stash[FILES] = files
    if WANTED in config.stash:
        return
    source = config.args_source
    is_below_root = here != files.root and files.root in here.parents
    if source is pytest.Config.ArgsSource.ARGS:
        if not config.option.pyargs:
            config.args = [argument for word in config.args for argument in _resolve(files, config, word)]
    elif here == files.site and files.of_site():  # as in any folder, its own tests are meant
        config.args = [str(path) for path in files.of_site()]
    elif source is pytest.Config.ArgsSource.TESTPATHS or not is_below_root:
        config.args = _all(files, config) or config.args


def _all(files: TestFiles, config: pytest.Config) -> list[str]:
    paths: list[Path] = []
    for pattern in config.getini("testpaths"):
        paths += sorted(files.root.glob(pattern))
    paths += files.of_site()
    return [str(path) for path in paths]


def _resolve(files: TestFiles, config: pytest.Config, word: str) -> list[str]:
    file, colons, test = word.partition("::")
    typed = checkout.absolute(config.invocation_params.dir / file)
    if not typed.exists() and files.of_test(file).exists():  # an id, as pytest prints it
        typed = files.of_test(file)
    path = files.resolve(typed)
    if path == files.root:
        return _all(files, config)
    if path == files.site:
        return [str(test_file) for test_file in files.of_site()] or [str(path)]
    return [f"{path}{colons}{test}"]


class SiteDirectory(pytest.Directory):
    """The site's folder, or one above it. It collects only the paths that the arguments name."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        children: set[Path] = set()
        for argument in self.config.args:
            named = Path(argument.partition("::")[0])
            children.update(path for path in (named, *named.parents) if path.parent == self.path)
        for path in sorted(children):
            if path.is_dir():
                yield self.ihook.pytest_collect_directory(path=path, parent=self)
            else:
                yield from self.ihook.pytest_collect_file(file_path=path, parent=self)


def folder(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Make the collector of the site's folder, or of one above it. Returns None for folders that pytest collects."""
    if not parent.config.stash[FILES].is_above_site(path):
        return None
    directory: pytest.Collector = SiteDirectory.from_parent(parent, path=path, nodeid=str(path))
    return directory


def module(path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Make the collector of a file of the site, with the id that it has everywhere. Returns None for other files."""
    nodeid = parent.config.stash[FILES].id_of(path)
    if nodeid is None:
        return None
    return pytest.Module.from_parent(parent, path=path, nodeid=nodeid)


def remember_failed(config: pytest.Config) -> None:
    """Tell --lf the files of the site with failed tests: it looks for failed files below the checkout only."""
    plugin: Any = config.pluginmanager.get_plugin("lfplugin")
    failed_paths: set[Path] | None = getattr(plugin, "_last_failed_paths", None)
    if failed_paths is None:
        return
    for test in plugin.lastfailed:
        path = config.stash[FILES].of_test(str(test))
        failed_paths.update(existing for existing in (path, *path.parents) if existing.exists())
