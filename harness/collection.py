"""Which files are collected: the suite's benchmarks, and beside them the tests of the site's folder.

A test of the site is `site/test_mine.py::test_mine[…]` on every machine, so an id does not say where the folder lies.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.select import WANTED

SITE = "site"


@dataclass(frozen=True)
class TestFiles:
    """The two folders that tests come from, both absolute: the checkout, and the site's."""

    root: Path
    site: Path

    def of_test(self, test: str) -> Path:
        """The file of a test's id."""
        file = test.partition("::")[0]
        folder, _, rest = file.partition("/")
        return self.site / rest if folder == SITE else self.root / file

    def is_of_site(self, path: Path) -> bool:
        """Whether a path lies in the site's folder; of two folders that lie in each other the inner one has it."""
        if not path.is_relative_to(self.site):
            return False
        return not path.is_relative_to(self.root) or (self.site != self.root and self.site.is_relative_to(self.root))

    def id_of(self, path: Path) -> str | None:
        """How the ids in a file of the site begin; None for any other file."""
        return f"{SITE}/{path.relative_to(self.site).as_posix()}" if self.is_of_site(path) else None

    def way_to_site(self, path: Path) -> bool:
        """Whether a folder outside of the checkout leads to the site's, or is it."""
        return self.site.is_relative_to(path) and not path.is_relative_to(self.root)

    def of_site(self) -> list[Path]:
        """The site's own tests."""
        return sorted(path for path in self.site.glob("test_*.py") if self.is_of_site(path))

    def meant(self, typed: Path) -> Path:
        """The path as a test of it has it: with `site/` of the checkout the site's folder is meant, wherever it lies.

        Raises UsageError for one that lies in neither folder: its ids would depend on where one stands.
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
    """Turn what was typed into the files and tests that are meant: nothing, or the suite's folder, is all of its
    benchmarks and all tests of the site; an id is one, in whatever folder it is typed. --resume has chosen already.
    Raises UsageError."""
    here = config.invocation_params.dir
    files = config.stash[FILES] = TestFiles(config.rootpath, Path(os.path.normpath(here / site)))
    typed, source = config.args, config.args_source
    if WANTED in config.stash:
        return
    if source is pytest.Config.ArgsSource.ARGS:
        if not config.option.pyargs:
            config.args = [meant for word in typed for meant in _meant(files, config, word)]
    elif source is pytest.Config.ArgsSource.TESTPATHS or here == files.root or files.root not in here.parents:
        config.args = _all(files, config) or typed


def _all(files: TestFiles, config: pytest.Config) -> list[str]:
    ours = [path for pattern in config.getini("testpaths") for path in sorted(files.root.glob(pattern))]
    return [str(path) for path in (*ours, *files.of_site())]


def _meant(files: TestFiles, config: pytest.Config, word: str) -> list[str]:
    file, colons, test = word.partition("::")
    typed = Path(os.path.normpath(config.invocation_params.dir / file))
    if not typed.exists() and files.of_test(file).exists():  # an id, as we print it
        typed = files.of_test(file)
    path = files.meant(typed)
    if path == files.root:
        return _all(files, config)
    if path == files.site:
        return [str(each) for each in files.of_site()] or [str(path)]
    return [f"{path}{colons}{test}"]


class SiteDirectory(pytest.Directory):
    """A folder on the way to the site's tests, or the site's own: nothing is looked at but what was named."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        named = [Path(word.partition("::")[0]) for word in self.config.args]
        inside = {path for each in named for path in (each, *each.parents) if path.parent == self.path}
        for path in sorted(inside):
            if path.is_dir():
                yield self.ihook.pytest_collect_directory(path=path, parent=self)
            else:
                yield from self.ihook.pytest_collect_file(file_path=path, parent=self)


def folder(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """The collector of a folder outside of the checkout; None leaves it to pytest."""
    if not parent.config.stash[FILES].way_to_site(path):
        return None
    way: pytest.Collector = SiteDirectory.from_parent(parent, path=path, nodeid=str(path))
    return way


def module(path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """The collector of a file of the site, whose id is ours to say; None leaves it to pytest."""
    nodeid = parent.config.stash[FILES].id_of(path)
    return None if nodeid is None else pytest.Module.from_parent(parent, path=path, nodeid=nodeid)


def remember_failed(config: pytest.Config) -> None:
    """--lf passes over files in which nothing failed, and looks for those of ids below the checkout only."""
    plugin: Any = config.pluginmanager.get_plugin("lfplugin")
    known: set[Path] | None = getattr(plugin, "_last_failed_paths", None)
    if known is None:
        return
    for test in plugin.lastfailed:
        path = config.stash[FILES].of_test(str(test))
        known.update(each for each in (path, *path.parents) if each.exists())
