"""Our command-line options: what they are called, where else they can be set, and what they come to."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import pytest

from platforms import checkout
from platforms.config.values import seconds_of
from platforms.job import RefusedError

CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "size": ("smoke", "quick", "subset", "full"),
        "mode": ("overlap", "blocking"),
        "dtype": ("fp32", "tf32", "bf16", "fp16"),
        "configuration": ("gbs32", "tuned"),
        "cache": ("as-is", "cold", "warm"),
    }
)
# All settings of a publication at once. What only one benchmark needs stands in its test (`presets=` of its mark).
PRESETS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"hpdc24": {"size": "subset", "mode": "blocking", "dtype": "fp32", "configuration": "gbs32"}}
)
# What decides which jobs tests make; a run goes on with what it began with.
KEPT = ("platform", *CHOICES, "variant", "layouts", "preset")
OTHERS = ("latest", "old", "archives")  # in runs/, what is no run
LAST = ""  # of --resume: no run was named
SITE_OPTIONS = ("size", "mode", "dtype", "variant", "configuration", "cache", "layouts", "preset", "wait")


@dataclass(frozen=True)
class Options:
    """The options as set by the command line (or addopts), else by site.yaml; the rest is each platform's own."""

    platforms: tuple[str, ...]
    site: Path
    runs: Path
    run_id: str | None
    run_again: bool
    resume: bool
    detach: bool
    dry_run: bool
    ask_server: bool
    wait_s: float | None
    preset: str | None
    layouts: str
    settings: Mapping[str, str]
    where: str = ""  # the words that said where site and runs are, for commands to be typed next

    def again(self, run_id: str) -> str:
        """The command that goes on with a run."""
        return f"pytest --resume={run_id}{self.where}"


def add(parser: pytest.Parser) -> None:
    """Declare the options in one group of `pytest --help`."""
    group = parser.getgroup("hpc-ml-bench", "hpc-ml-bench: where and how the benchmarks run")
    group.addoption("--platform", action="append", default=[], metavar="NAME", help="run on this platform (repeatable)")
    for name, choices in CHOICES.items():
        group.addoption(f"--{name}", choices=choices, help=f"{name} of every job (default: the platform's own)")
    group.addoption("--variant", metavar="NAME", help="variant of the model, as in --variant epcc")
    group.addoption(
        "--layouts",
        metavar="SET",
        help="which of a platform's named sets of layouts to run, one set in a session (default: default)",
    )
    group.addoption("--preset", choices=sorted(PRESETS), help="all settings of a publication at once: hpdc24")
    # Two options, as one with an optional value would take the next word of the command line for it.
    group.addoption(
        "--dry-run",
        action="store_const",
        const="client",
        help="show each job as it would be submitted, and submit nothing",
    )
    group.addoption(
        "--dry-run=server",
        dest="dry_run",
        action="store_const",
        const="server",
        help="the same, and ask each scheduler what it has against it",
    )
    group.addoption(
        "--wait",
        metavar="TIME",
        help="stop waiting after this time (30m, 2h, 0): what is not finished is PENDING, exit code 75",
    )
    group.addoption(
        "--run-id",
        metavar="ID",
        help="name of this run (default: $CI_PIPELINE_ID, else date and time); a session of the same name goes on with "
        "what one that was killed, detached or stopped waiting has left",
    )
    group.addoption(
        "--resume",
        nargs="?",
        const=LAST,
        metavar="RUN",
        help="go on with this run (default: the last one that is not finished): its tests, its options, its jobs",
    )
    group.addoption(
        "--on-interrupt",
        choices=("cancel", "detach"),
        default="cancel",
        help="what Ctrl-C and SIGTERM do with jobs: end them (default), or let them go on, for --resume",
    )
    group.addoption(
        "--runs-dir",
        metavar="DIR",
        help="where jobs leave their evidence (default: runs/ of the checkout, or of the folder that --site names)",
    )
    group.addoption(
        "--site",
        metavar="DIR",
        help="a centre's own platforms and tests, as --site=DIR (default: $HPC_ML_BENCH_SITE, else site/)",
    )


def site_folder(config: pytest.Config) -> Path:
    """Where the centre's own files are: --site, else HPC_ML_BENCH_SITE, else site/ of this checkout."""
    try:
        return checkout.site_folder(config.getoption("site"), config.rootpath)
    except RefusedError as error:
        raise pytest.UsageError(str(error)) from None


def home(config: pytest.Config) -> Path:
    """Where what sessions leave lies: the folder of a site that is named, else this checkout."""
    try:
        return checkout.home(config.getoption("site"), config.rootpath)
    except RefusedError as error:
        raise pytest.UsageError(str(error)) from None


def runs_folder(config: pytest.Config) -> Path:
    """--runs-dir, else runs/ of the home."""
    return Path(config.getoption("runs_dir") or home(config) / "runs")


def resolve(config: pytest.Config, site_options: Mapping[str, object], site: Path) -> Options:
    """Merge the command line with site.yaml. Raises UsageError naming the option that cannot be used."""
    if unknown := sorted(set(site_options) - set(SITE_OPTIONS)):
        raise pytest.UsageError(
            f"{site / 'site.yaml'}: options: {unknown[0]}: no such option; known: {', '.join(SITE_OPTIONS)}"
        )

    def value(name: str) -> str | None:
        found: str | None = config.getoption(name)
        if found is None and name in site_options:
            found = str(site_options[name])
            if found not in CHOICES.get(name, (found,)):
                raise pytest.UsageError(
                    f"{site / 'site.yaml'}: options: {name}: {found!r} is none of {', '.join(CHOICES[name])}"
                )
        return found

    wait = value("wait")
    try:
        wait_s = None if wait is None else 0.0 if wait == "0" else seconds_of(wait)
    except ValueError as error:
        raise pytest.UsageError(f"--wait: {error}") from None
    preset = value("preset")
    if preset is not None and preset not in PRESETS:
        raise pytest.UsageError(f"preset: {preset!r} is none of {', '.join(PRESETS)}")
    named: str | None = config.getoption("run_id")
    if named is None:
        named = os.environ.get("CI_PIPELINE_ID") or None
    own = {name: found for name in (*CHOICES, "variant") if (found := value(name)) is not None}
    return Options(
        platforms=tuple(config.getoption("platform")),
        site=site,
        runs=runs_folder(config),
        run_id=None if named is None else run_name("--run-id", named),
        run_again=named is not None and config.getoption("resume") is None,
        resume=config.getoption("resume") is not None,
        detach=config.getoption("on_interrupt") == "detach",
        dry_run=config.getoption("dry_run") is not None,
        ask_server=config.getoption("dry_run") == "server",
        wait_s=wait_s,
        preset=preset,
        layouts=value("layouts") or "default",
        settings={**(PRESETS[preset] if preset else {}), **own},
        where=typed_places(config),
    )


def typed_places(config: pytest.Config) -> str:
    """--site and --runs-dir as they were typed."""
    named = {"--site": config.getoption("site"), "--runs-dir": config.getoption("runs_dir")}
    return "".join(f" {option}={shlex.quote(str(value))}" for option, value in named.items() if value)


def run_name(option: str, text: str) -> str:
    """The name that a run was given; it becomes a folder's. Raises UsageError."""
    if text in OTHERS or not re.fullmatch(r"[\w][\w.=+-]{0,99}", text, re.ASCII):
        raise pytest.UsageError(
            f"{option}: {text!r} can be no name of a run: letters, digits and . _ = + - (100 at most), and none of "
            f"{', '.join(OTHERS)}, which lie beside the runs"
        )
    return text
