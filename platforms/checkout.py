"""A clone of the suite: where its benchmarks, its platforms and the folder of the site lie, and how they are loaded."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path

from platforms.config import schema
from platforms.config.loading import nearest
from platforms.config.schema import Platform, Site
from platforms.job import ConfigError, RefusedError
from platforms.schedulers import FILE_KEYS, backend_of

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "platforms"


def absolute(path: Path) -> Path:
    """The absolute path without `..`. What follows the last one stays: machines may know only a link."""
    parts = path.absolute().parts
    if ".." not in parts:
        return path.absolute()
    below_dots = len(parts) - parts[::-1].index("..")
    return Path(os.path.realpath(Path(*parts[:below_dots])), *parts[below_dots:])


def is_same(one: Path, other: Path) -> bool:
    """Whether two paths, one of which need not exist, lead to one place, however they are written."""
    return os.path.realpath(one) == os.path.realpath(other)


@cache
def benchmarks(root: Path = ROOT) -> tuple[str, ...]:
    """The benchmarks that can be trained: each module of models/benchmarks is one, as in `models.benchmarks.names`.

    Raises RefusedError if there is none.
    """
    folder = root / "models" / "benchmarks"
    names = sorted(module.stem for module in folder.glob("*.py") if not module.stem.startswith("_"))
    if not names:
        raise RefusedError(f"{folder}: it holds no benchmark")
    return tuple(names)


def site_folder(named: str | None, root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the site: `named`, else HPC_ML_BENCH_SITE, else site/ of the clone, which need not exist.

    Raises RefusedError if one that is named does not exist.
    """
    named = named or environ.get("HPC_ML_BENCH_SITE")
    if named and Path(named).is_file():
        raise RefusedError(f"{named}: is a file; --site and HPC_ML_BENCH_SITE name its folder: {Path(named).parent}")
    if named and not Path(named).is_dir():
        raise RefusedError(
            f"{named}: no such folder; --site and HPC_ML_BENCH_SITE name the folder of site.yaml (mkdir {named})"
        )
    return Path(named or root / "site")


def site_option(site: Path, root: Path = ROOT) -> str:
    """The option ` --site=DIR` for a command to type; empty if the site's folder is site/ of the clone."""
    if is_same(site, root / "site"):
        return ""
    return f" --site={shlex.quote(str(site))}"


def home(named: str | None, root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder in which sessions create runs/ and everything else.

    That is the site's folder, if it is not site/ of the clone and can be written: so one clone serves many sites. Else
    it is the clone. Raises RefusedError if a folder that is named does not exist.
    """
    site = absolute(site_folder(named, root, environ))
    if is_same(site, root / "site") or not os.access(site, os.W_OK | os.X_OK):
        return root
    return site


class Platforms(dict[str, Platform]):
    """The platforms by their names, without those whose file has mistakes: to ask for one raises its ConfigError."""

    def __init__(self, platforms: Mapping[str, Platform], mistakes: Mapping[str, Sequence[str]]) -> None:
        super().__init__(platforms)
        self.mistakes = mistakes

    def __missing__(self, name: str) -> Platform:
        if name in self.mistakes:
            raise ConfigError(self.mistakes[name])
        raise KeyError(name)


def load(site: Path) -> tuple[Site, Platforms]:
    """Load site.yaml and all platforms. Raises ConfigError for mistakes in site.yaml, and a folder that is unreadable.

    A mistake in the file of one platform concerns only those who ask for it.
    """
    settings = schema.load_site(site)
    folders = [SHIPPED, site / "platforms"]
    sound, mistakes = schema.read_platforms(folders, settings, schedulers=FILE_KEYS, benchmarks=benchmarks())
    return settings, Platforms(sound, mistakes)


def file_names(site: Path) -> set[str]:
    """The names of the platforms that have a file, even one with mistakes."""
    shipped = {path.stem for path in SHIPPED.glob("*.yaml")}
    return shipped | {path.stem for path in (site / "platforms").glob("*.yaml")}


def find(name: str, platforms: Mapping[str, Platform]) -> Platform:
    """The platform with that name.

    Raises RefusedError with the nearest name, and the command that makes a platform; ConfigError for mistakes in its
    file.
    """
    try:
        return platforms[name]
    except KeyError:
        raise RefusedError(unknown(name, platforms)) from None


def unknown(name: str, known: Collection[str]) -> str:
    """The message for a name that no platform has: the nearest name, and the command that makes a platform."""
    make = f"python -m platforms init {name} [--ssh HOST | --context CONTEXT]"
    return f"there is no platform {name!r} {nearest(name, known)}; a new one: {make}"


def is_enabled(platform: Platform, settings: Site) -> bool:
    """Whether the centre has enabled the platform, or this machine has it, such as a cluster that runs here."""
    return platform.name in settings.enabled or backend_of(platform).is_present(platform)


def refuse_unready(platform: Platform, site: Path, settings: Site) -> None:
    """Raise RefusedError, with what to write or type, for a platform that lacks values or is not enabled."""
    file = site / "site.yaml"
    if platform.missing:
        lines = ", ".join(f"{key}: …" for key in platform.missing)
        raise RefusedError(f"{platform.source} needs values of the site: write `values: {{{lines}}}` into {file}")
    if platform.name != "local" and not is_enabled(platform, settings):
        raise RefusedError(
            f"{platform.name} is not enabled: python -m platforms enable {platform.name}{site_option(site)}"
        )
