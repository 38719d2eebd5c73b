"""Where things lie in a clone of the suite: its own platforms, the centre's folder, and both read together."""

from __future__ import annotations

import ast
import os
import re
import shlex
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path

from platforms.config import schema
from platforms.config.loading import nearest
from platforms.config.schema import Platform, Site
from platforms.job import RefusedError
from platforms.schedulers import FILE_KEYS, backend_of

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "platforms"


@cache
def benchmarks(root: Path = ROOT) -> tuple[str, ...]:
    """The benchmarks that have data sets and can be trained: each module of models/benchmarks is one, as in
    `models.benchmarks.names`. Raises RefusedError where there is none."""
    folder = root / "models" / "benchmarks"
    names = sorted(module.stem for module in folder.glob("*.py") if not module.stem.startswith("_"))
    if not names:
        raise RefusedError(f"{folder}: it holds no benchmark")
    return tuple(names)


@cache
def device_families(root: Path = ROOT) -> tuple[str, ...]:
    """The devices that models/accelerators can train on, as a job names them: cpu, cuda. Raises RefusedError."""
    return _named_in(root / "models" / "accelerators" / "__init__.py", "FAMILIES")


def _named_in(source: Path, name: str) -> tuple[str, ...]:
    """The names in a tuple, or the keys of a dict, of a module of models/. It is read and not imported: models/ is what
    runs inside the job. It is not parsed as a whole either, since every session does this."""
    text = source.read_text(encoding="utf-8")
    found = re.search(rf"^{name}\b[^=\n]*=\s*([({{].*?[)}}])\s*$", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise RefusedError(f"{source}: there is no {name} in it")
    return tuple(ast.literal_eval(found[1]))


def site_folder(named: str | None, root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> Path:
    """The centre's own folder: the one that is `named`, else HPC_ML_BENCH_SITE, else site/ of the clone, which need not
    be there. Raises RefusedError for a named one that is not there."""
    named = named or environ.get("HPC_ML_BENCH_SITE")
    if named and Path(named).is_file():
        raise RefusedError(f"{named}: is a file; --site and HPC_ML_BENCH_SITE name its folder: {Path(named).parent}")
    if named and not Path(named).is_dir():
        raise RefusedError(
            f"{named}: no such folder; --site and HPC_ML_BENCH_SITE name the folder of site.yaml (mkdir {named})"
        )
    return Path(named or root / "site")


def site_option(site: Path, root: Path = ROOT) -> str:
    """` --site=DIR`, for a command that is to be typed, where the site's folder is not the clone's own."""
    return "" if site.absolute() == root / "site" else f" --site={shlex.quote(str(site))}"


def home(named: str | None, root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> Path:
    """Where sessions leave what they leave, runs/ first of all: in the site's folder where one is named that is not the
    clone's own and can be written, so that one clone serves many sites, else in the clone. Raises RefusedError for a
    named one that is not there."""
    site = site_folder(named, root, environ).absolute()
    own = site.resolve() == (root / "site").resolve()
    return root if own or not os.access(site, os.W_OK | os.X_OK) else site


def load(site: Path) -> tuple[Site, dict[str, Platform]]:
    """What the centre says, and all platforms by name. Raises ConfigError with every mistake of every file."""
    settings = schema.load_site(site)
    folders = [SHIPPED, site / "platforms"]
    return settings, schema.load_platforms(folders, settings, schedulers=FILE_KEYS, benchmarks=benchmarks())


def find(name: str, platforms: Mapping[str, Platform]) -> Platform:
    """The platform of that name. Raises RefusedError with the nearest one, or the command that makes it."""
    if name not in platforms:
        raise RefusedError(unknown(name, platforms))
    return platforms[name]


def unknown(name: str, known: Collection[str]) -> str:
    """What to say of a name that no platform has: the nearest one, and the command that makes it."""
    make = f"python -m platforms init {name} [--ssh HOST | --context CONTEXT]"
    return f"there is no platform {name!r} {nearest(name, known)}; a new one: {make}"


def is_enabled(platform: Platform, settings: Site) -> bool:
    """Whether the centre has enabled the platform, or this machine has it, such as a cluster that runs here."""
    return platform.name in settings.enabled or backend_of(platform).is_present(platform)


def refuse_unready(platform: Platform, site: Path, settings: Site) -> None:
    """Nothing is submitted to a platform that the centre has not enabled, or of which it has left values open.

    Raises RefusedError with what to write or to type.
    """
    file = site / "site.yaml"
    if platform.missing:
        lines = ", ".join(f"{key}: …" for key in platform.missing)
        raise RefusedError(f"{platform.source} needs values of the site: write `values: {{{lines}}}` into {file}")
    if platform.name != "local" and not is_enabled(platform, settings):
        raise RefusedError(
            f"{platform.name} is not enabled: python -m platforms enable {platform.name}{site_option(site)}"
        )
