"""The suite's command-line options. Each is declared and read as a field of `Options`, or of `TrialOptions`."""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from harness import declared, trial_options
from harness.declared import option
from harness.trial_options import TrialOptions
from platforms import checkout
from platforms.config.durations import seconds_of
from platforms.job import RefusedError

# All settings of a publication at once. The settings of one benchmark only are in its test (`presets=` of its mark).
PRESETS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"hpdc24": {"size": "subset", "mode": "blocking", "dtype": "fp32", "configuration": "gbs32"}}
)
NOT_RUNS = ("latest", "old", "archives")  # names in runs/ that are no runs
LAST = ""  # the value of --resume without a name
LOOKING = ("dry_run", "collectonly", "setuponly", "setupplan")  # options of sessions that run no test


def _wait_s(typed: str | None) -> float | None:
    if typed is None:
        return None
    if typed == "0":
        return 0.0
    return seconds_of(typed)


def run_name(text: str) -> str:
    """Check the name of a run, which becomes the name of its folder. Raises ValueError."""
    if text in NOT_RUNS or not re.fullmatch(r"[\w][\w.=+-]{0,99}", text, re.ASCII):
        raise ValueError(
            f"{text!r} can be no name of a run: letters, digits and . _ = + - (100 at most), and none of "
            f"{', '.join(NOT_RUNS)}, which lie beside the runs"
        )
    return text


def _run_id(typed: str | None) -> str | None:
    if typed is None:
        typed = os.environ.get("CI_PIPELINE_ID") or None
    if typed is None:
        return None
    return run_name(typed)


def _setting(name: str, *choices: str) -> Any:
    """Declare a setting of every job, which each platform has a default of."""
    return option(
        f"--{name}", f"{name} of every job (default: the platform's own)", kept=True, in_site=True, choices=choices
    )


@dataclass(frozen=True)
class Options:
    """The options as set by the command line (or addopts), else by site.yaml; the rest is each platform's own.

    Attributes:
        trials: those that give a test several jobs, or say on which nodes they run.
        site, runs: the folders of the site and of the runs.
        report: the file that gets the page of the site's history; None in a session that runs no test.
        code: the commit whose models/ jobs run, as 40 digits; None for the files of this checkout.
    """

    trials: TrialOptions
    site: Path
    runs: Path
    report: Path | None
    platforms: tuple[str, ...] = option(
        "--platform",
        "run on this platform (repeatable)",
        read=tuple,
        kept=True,
        action="append",
        default=[],
        metavar="NAME",
    )
    size: str | None = _setting("size", "smoke", "quick", "subset", "full")
    mode: str | None = _setting("mode", "overlap", "blocking")
    dtype: str | None = _setting("dtype", "fp32", "tf32", "bf16", "fp16")
    configuration: str | None = _setting("configuration", "gbs32", "tuned")
    cache: str | None = _setting("cache", "as-is", "cold", "warm")
    variant: str | None = option(
        "--variant", "variant of the model, as in --variant epcc", kept=True, in_site=True, metavar="NAME"
    )
    layouts: str = option(
        "--layouts",
        "which of a platform's named sets of layouts to run, one set in a session (default: default)",
        read=lambda typed: typed or "default",
        kept=True,
        in_site=True,
        metavar="SET",
    )
    preset: str | None = option(
        "--preset", "all settings of a publication at once: hpdc24", kept=True, in_site=True, choices=sorted(PRESETS)
    )
    code: str | None = option(
        "--code",
        "jobs run the models/ of this commit of the suite (default: that of this checkout)",
        kept=True,
        metavar="COMMIT",
    )
    decompose: bool = option(
        "--decompose",
        "after its windows, each training also runs without its loader and without its network, and loads without "
        "training: what bounds it? (CPUs and GPUs)",
        read=bool,
        kept=True,
        action="store_true",
    )
    try_unsupported: bool = option(
        "--try-unsupported",
        "run the tests that the file of a named platform says cannot run (`unsupported:`, `cannot_run:`), to see "
        "whether that still holds",
        read=bool,
        kept=True,
        action="store_true",
    )
    dry_run: bool = option(
        "--dry-run",
        "show each job as it would be submitted, and submit nothing",
        read=bool,
        action="store_const",
        const="client",
    )
    # Of its own, as one option with an optional value would take the next word of the command line for it.
    ask_server: bool = option(
        "--dry-run=server",
        "the same, and ask each scheduler what it has against it",
        read=lambda typed: typed == "server",
        dest="dry_run",
        action="store_const",
        const="server",
    )
    wait_s: float | None = option(
        "--wait",
        "stop waiting after this time (30m, 2h, 0): what is not finished is PENDING, exit code 75",
        read=_wait_s,
        in_site=True,
        metavar="TIME",
    )
    run_id: str | None = option(
        "--run-id",
        "name of this run (default: $CI_PIPELINE_ID, else date and time); a session of the same name goes on with what "
        "one that was killed, detached or stopped waiting has left",
        read=_run_id,
        metavar="ID",
    )
    resume: bool = option(
        "--resume",
        "go on with this run (default: the last one that is not finished): its tests, its options, its jobs",
        read=lambda typed: typed is not None,
        nargs="?",
        const=LAST,
        metavar="RUN",
    )
    detach: bool = option(
        "--on-interrupt",
        "what Ctrl-C and SIGTERM do with jobs: end them (default), or let them go on, for --resume",
        read=lambda typed: typed == "detach",
        choices=("cancel", "detach"),
        default="cancel",
    )
    typed_runs: str | None = option(
        "--runs-dir",
        "where jobs leave their evidence (default: runs/ of the checkout, or of the folder that --site names)",
        metavar="DIR",
    )
    typed_history: str | None = option(
        "--history",
        "a folder where a line is kept for each job, as --history=DIR (after a blank, pytest takes a folder for its "
        "root, and then knows no option of ours); it must exist (default: `history:` in site.yaml, else history/ in "
        "the site's folder)",
        metavar="DIR",
    )
    gate: str = option(
        "--gate",
        "compare each number with its history: a regression fails its test (on, the default); only record (off); a "
        "test whose numbers cannot be compared is an error, too (require)",
        read=lambda typed: typed or "on",
        in_site=True,
        choices=("on", "off", "require"),
    )
    named_report: str | None = option(
        "--report",
        "at the end write the page of the site's whole history into this file, as --report=FILE.html, with =; its "
        "folder must exist",
        in_site=True,
        metavar="FILE",
    )
    typed_site: str | None = option(
        "--site",
        "a centre's own platforms and tests, as --site=DIR (default: $HPC_ML_BENCH_SITE, else site/)",
        metavar="DIR",
    )

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """The settings of every job, those of the preset included; what is not named is the platform's own."""
        settings = dict(PRESETS.get(self.preset or "", {}))
        for name in ("size", "mode", "dtype", "configuration", "cache", "variant"):
            setting = getattr(self, name)
            if setting is not None:
                settings[name] = setting
        if self.trials.single_nodes:
            settings.setdefault("size", "quick")
        return settings

    @property
    def dtype_from_preset(self) -> bool:
        """Whether the dtype in `settings` is the preset's."""
        return self.preset is not None and self.dtype is None

    @property
    def typed_places(self) -> str:
        """--site and --runs-dir as they were typed, each with a space before it, for commands that are printed."""
        typed = ""
        if self.typed_site:
            typed += f" --site={shlex.quote(self.typed_site)}"
        if self.typed_runs or self.trials.check:  # of a check they lie where nobody looks for them
            typed += f" --runs-dir={shlex.quote(str(self.runs))}"
        return typed

    def again(self, run_id: str) -> str:
        """Write the command that goes on with a run."""
        return f"pytest --resume={run_id}{self.typed_places}"

    def new_run_id(self) -> str:
        """--run-id, else the date and four letters."""
        return self.run_id or time.strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(2)


_OWN = dict(declared.declarations(Options))
_OF_TRIALS = dict(declared.declarations(TrialOptions))
KEPT = [one for one in _OWN.values() if one.is_kept] + list(_OF_TRIALS.values())
"""The options that decide which jobs tests make. A resumed run keeps the values with which it began."""


def add(parser: pytest.Parser) -> None:
    """Declare the options in one group of `pytest --help`."""
    group = parser.getgroup("hpc-ml-bench", "hpc-ml-bench: where and how the benchmarks run")
    declared.add(group, Options)
    declared.add(group, TrialOptions)


def site_folder(config: pytest.Config) -> Path:
    """Find the folder of the centre's files: --site, else HPC_ML_BENCH_SITE, else site/ of this checkout."""
    try:
        return checkout.site_folder(config.getoption("site"), config.rootpath)
    except RefusedError as error:
        raise pytest.UsageError(str(error)) from None


def home(config: pytest.Config) -> Path:
    """Find the folder in which sessions write: that of a named site, else this checkout; with --check the user's."""
    if config.getoption("check"):
        from harness import user_check

        return user_check.folder()
    try:
        return checkout.home(config.getoption("site"), config.rootpath)
    except RefusedError as error:
        raise pytest.UsageError(str(error)) from None


def runs_folder(config: pytest.Config) -> Path:
    """Find the folder of the runs: --runs-dir, else runs/ of the home."""
    return Path(config.getoption("runs_dir") or home(config) / "runs")


def resolve(config: pytest.Config, site_options: Mapping[str, object], site: Path) -> Options:
    """Merge the command line with site.yaml. Raises UsageError naming the option that cannot be used."""
    site_yaml = site / "site.yaml"
    known = [one.name for one in _OWN.values() if one.in_site]
    unknown = sorted(set(site_options) - set(known))
    if unknown:
        raise pytest.UsageError(f"{site_yaml}: options: {unknown[0]}: no such option; known: {', '.join(known)}")
    values = declared.values(config, Options, site_options, site_yaml)
    trials = TrialOptions(**declared.values(config, TrialOptions, {}, site_yaml))
    trial_options.refuse_contradictions(trials, config)
    values["platforms"] = values["platforms"] or ((trials.check,) if trials.check else ())
    values["code"] = _full_commit(config, values["code"])
    options = Options(
        **values,
        trials=trials,
        site=site,
        runs=runs_folder(config),
        report=_report(config, values["named_report"], site),
    )
    _refuse_contradictions(options, config)
    return options


def _refuse_contradictions(options: Options, config: pytest.Config) -> None:
    compares_twice = config.getoption("gate") in ("on", "require") and config.getoption("benchmark_compare_fail", None)
    if compares_twice:
        raise pytest.UsageError(
            f"--gate={options.gate} and --benchmark-compare-fail are two gates on the same numbers: leave one of them "
            "out (docs/gate.md). Nothing was submitted"
        )
    if config.getoption("benchmark_histogram", None) and importlib.util.find_spec("pygal") is None:
        raise pytest.UsageError(
            "--benchmark-histogram draws with pygal, which is not installed: leave it out, or "
            "pip install 'pytest-benchmark[histogram]'. Nothing was submitted"
        )
    comparing = [*options.trials.questions]
    if options.gate == "require":
        comparing.append("--gate=require")
    if options.try_unsupported and comparing:
        raise pytest.UsageError(
            f"--try-unsupported asks whether a test runs at all, and {comparing[0]} compares numbers of tests that "
            "run: leave one of them out. Nothing was submitted"
        )


def _full_commit(config: pytest.Config, name: str | None) -> str | None:
    """The commit that --code names. A resumed run keeps the commit itself, since a branch moves on."""
    if name is None:
        return None
    from platforms.rundir import code_archive

    try:
        commit = code_archive.full_commit(checkout.ROOT, name)
    except RefusedError as error:
        raise pytest.UsageError(f"--code: {error}") from None
    config.option.code = commit
    return commit


def _report(config: pytest.Config, named: str | None, site: Path) -> Path | None:
    """The file of --report, else of site.yaml, relative to the site's folder; None where a session runs no test.

    Raises UsageError where --report is typed for such a session.
    """
    is_typed = config.getoption("report") is not None
    is_looking = any(config.getoption(name, None) for name in LOOKING)
    if is_typed and is_looking:
        raise pytest.UsageError(
            "--report: a session with --dry-run, --collect-only, --setup-only or --setup-plan runs no test, so it has "
            f"nothing to report: leave one of them out (python -m reporting html -o {shlex.quote(str(named))} makes "
            "the page at any time)"
        )
    if named is None or is_looking:
        return None
    file = Path(named).expanduser()
    return file if is_typed else site / file
