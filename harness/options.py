"""The suite's command-line options: their names, their values in site.yaml, and how both are merged."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from harness import trial_options
from harness.trial_options import TrialOptions
from platforms import checkout
from platforms.config.values import seconds_of
from platforms.job import RefusedError

if TYPE_CHECKING:
    from platforms.config.schema import Site

CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "size": ("smoke", "quick", "subset", "full"),
        "mode": ("overlap", "blocking"),
        "dtype": ("fp32", "tf32", "bf16", "fp16"),
        "configuration": ("gbs32", "tuned"),
        "cache": ("as-is", "cold", "warm"),
    }
)
# All settings of a publication at once. The settings of one benchmark only are in its test (`presets=` of its mark).
PRESETS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"hpdc24": {"size": "subset", "mode": "blocking", "dtype": "fp32", "configuration": "gbs32"}}
)
# The options that decide which jobs tests make. A resumed run keeps the values with which it began.
KEPT = ("platform", *CHOICES, "variant", "layouts", "preset", "code", "try_unsupported", *trial_options.NAMES)
FLAGS = ("try_unsupported",)  # of KEPT, those without a value
NOT_RUNS = ("latest", "old", "archives")  # names in runs/ that are no runs
LAST = ""  # the value of --resume without a name
GATES = ("on", "off", "require")
SITE_OPTIONS = (
    *("size", "mode", "dtype", "variant", "configuration", "cache", "layouts", "preset", "wait", "gate", "report"),
)
LOOKING = ("dry_run", "collectonly", "setuponly", "setupplan")  # options of sessions that run no test


@dataclass(frozen=True)
class Options:
    """The options as set by the command line (or addopts), else by site.yaml; the rest is each platform's own."""

    platforms: tuple[str, ...]
    site: Path
    runs: Path
    run_id: str | None
    resume: bool
    detach: bool
    dry_run: bool
    ask_server: bool
    wait_s: float | None
    preset: str | None
    layouts: str
    settings: Mapping[str, str]
    trials: TrialOptions
    dtype_from_preset: bool = False  # the dtype in `settings` is the preset's
    gate: str = "on"
    code: str | None = None
    """The commit whose models/ jobs run, as 40 digits; None for the files of this checkout."""
    typed_places: str = ""  # --site and --runs-dir as they were typed, for commands that are printed
    try_unsupported: bool = False
    """Run what the platform's file says cannot run there."""
    report: Path | None = None
    """The file that gets the page of the site's history at the end of the session."""

    def again(self, run_id: str) -> str:
        """Write the command that goes on with a run."""
        return f"pytest --resume={run_id}{self.typed_places}"

    def typed_for_commands(self, site: Site, history: Path) -> str:
        """Write `--site=DIR` and `--history=DIR`, as far as a command that reads this history needs them.

        Folders in the checkout of a CI job of GitLab are left out: a person types the command on another machine.
        """
        from reporting.history.place import history_folder

        checkout_of_job = os.environ.get("CI_PROJECT_DIR")

        def is_of_job(folder: Path) -> bool:
            return checkout_of_job is not None and folder.absolute().is_relative_to(Path(checkout_of_job).absolute())

        typed = "" if is_of_job(self.site) else checkout.site_option(self.site)
        is_default = history == history_folder(None, site, self.site).absolute()
        if not is_default and not is_of_job(history):
            typed += f" --history={shlex.quote(str(history))}"
        return typed.strip()


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
    group.addoption(
        "--code",
        metavar="COMMIT",
        help="jobs run the models/ of this commit of the suite (default: that of this checkout)",
    )
    group.addoption(
        "--try-unsupported",
        action="store_true",
        help="run the tests that the file of a named platform says cannot run (`unsupported:`, `cannot_run:`), to see "
        "whether that still holds",
    )
    trial_options.add(group)
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
        "--history",
        metavar="DIR",
        help="a folder where a line is kept for each job, as --history=DIR (after a blank, pytest takes a folder for "
        "its root, and then knows no option of ours); it must exist (default: `history:` in site.yaml, else history/ "
        "in the site's folder)",
    )
    group.addoption(
        "--gate",
        choices=GATES,
        help="compare each number with its history: a regression fails its test (on, the default); only record (off); "
        "a test whose numbers cannot be compared is an error, too (require)",
    )
    group.addoption(
        "--report",
        metavar="FILE",
        help="at the end write the page of the site's whole history into this file, as --report=FILE.html, with =; its "
        "folder must exist",
    )
    group.addoption(
        "--site",
        metavar="DIR",
        help="a centre's own platforms and tests, as --site=DIR (default: $HPC_ML_BENCH_SITE, else site/)",
    )


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
    unknown = sorted(set(site_options) - set(SITE_OPTIONS))
    if unknown:
        raise pytest.UsageError(
            f"{site / 'site.yaml'}: options: {unknown[0]}: no such option; known: {', '.join(SITE_OPTIONS)}"
        )

    def value(name: str) -> str | None:
        typed: str | None = config.getoption(name)
        if typed is not None or name not in site_options:
            return typed
        from_site = str(site_options[name])
        if name in CHOICES and from_site not in CHOICES[name]:
            raise pytest.UsageError(
                f"{site / 'site.yaml'}: options: {name}: {from_site!r} is none of {', '.join(CHOICES[name])}"
            )
        return from_site

    wait_s = _seconds_to_wait(value("wait"))
    preset = value("preset")
    if preset is not None and preset not in PRESETS:
        raise pytest.UsageError(f"preset: {preset!r} is none of {', '.join(PRESETS)}")
    settings = dict(PRESETS[preset]) if preset else {}
    for name in (*CHOICES, "variant"):
        setting = value(name)
        if setting is not None:
            settings[name] = setting
    trials = trial_options.resolve(config)
    if trials.single_nodes:
        settings.setdefault("size", "quick")
    named: str | None = config.getoption("run_id")
    if named is None:
        named = os.environ.get("CI_PIPELINE_ID") or None
    return Options(
        platforms=tuple(config.getoption("platform")) or ((trials.check,) if trials.check else ()),
        site=site,
        runs=runs_folder(config),
        run_id=None if named is None else run_name("--run-id", named),
        resume=config.getoption("resume") is not None,
        detach=config.getoption("on_interrupt") == "detach",
        dry_run=config.getoption("dry_run") is not None,
        ask_server=config.getoption("dry_run") == "server",
        wait_s=wait_s,
        preset=preset,
        layouts=value("layouts") or "default",
        settings=settings,
        trials=trials,
        dtype_from_preset=preset is not None and value("dtype") is None,
        gate=_gate(config, value("gate") or "on", site),
        code=_code(config),
        typed_places=typed_places(config),
        try_unsupported=_try_unsupported(config, trials, value("gate") or "on"),
        report=_report(config, site_options, site),
    )


def _try_unsupported(config: pytest.Config, trials: TrialOptions, gate: str) -> bool:
    """Whether --try-unsupported is typed. Raises UsageError where another option needs tests that run."""
    if not config.getoption("try_unsupported"):
        return False
    contradictions = {
        "--repeat, --label or --treated": trials.is_campaign,
        "--each-node": trials.each_node is not None,
        "--ab": bool(trials.arms),
        "--check": trials.check is not None,
        "--gate=require": gate == "require",
    }
    for name, is_given in contradictions.items():
        if is_given:
            raise pytest.UsageError(
                f"--try-unsupported asks whether a test runs at all, and {name} compares numbers of tests that run: "
                "leave one of them out. Nothing was submitted"
            )
    return True


def _code(config: pytest.Config) -> str | None:
    """The commit that --code names. A resumed run keeps the commit itself, since a branch moves on."""
    name: str | None = config.getoption("code")
    if name is None:
        return None
    from platforms.rundir import code_archive

    try:
        config.option.code = code_archive.full_commit(checkout.ROOT, name)
    except RefusedError as error:
        raise pytest.UsageError(f"--code: {error}") from None
    commit: str = config.option.code
    return commit


def _seconds_to_wait(text: str | None) -> float | None:
    if text is None:
        return None
    if text == "0":
        return 0.0
    try:
        return seconds_of(text)
    except ValueError as error:
        raise pytest.UsageError(f"--wait: {error}") from None


def _gate(config: pytest.Config, named: str, site: Path) -> str:
    """Check the value of --gate. Raises UsageError."""
    if named not in GATES:
        raise pytest.UsageError(f"{site / 'site.yaml'}: options: gate: {named!r} is none of {', '.join(GATES)}")
    if config.getoption("gate") in ("on", "require") and config.getoption("benchmark_compare_fail", None):
        raise pytest.UsageError(
            f"--gate={named} and --benchmark-compare-fail are two gates on the same numbers: leave one of them out "
            "(docs/gate.md). Nothing was submitted"
        )
    return named


def _report(config: pytest.Config, site_options: Mapping[str, object], site: Path) -> Path | None:
    """The file of --report, else of site.yaml, relative to the site's folder; None where a session runs no test.

    Raises UsageError where --report is typed for such a session.
    """
    typed: str | None = config.getoption("report")
    is_looking = any(config.getoption(name, None) for name in LOOKING)
    if typed is not None and is_looking:
        raise pytest.UsageError(
            "--report: a session with --dry-run, --collect-only, --setup-only or --setup-plan runs no test, so it has "
            f"nothing to report: leave one of them out (python -m reporting html -o {shlex.quote(typed)} makes the "
            "page at any time)"
        )
    if typed is not None:
        return Path(typed).expanduser()
    if "report" not in site_options or is_looking:
        return None
    return site / Path(str(site_options["report"])).expanduser()


def typed_places(config: pytest.Config) -> str:
    """Write --site and --runs-dir as they were typed, each with a space before it."""
    typed = ""
    for option, name in (("--site", "site"), ("--runs-dir", "runs_dir")):
        value = config.getoption(name)
        if value:
            typed += f" {option}={shlex.quote(str(value))}"
    if config.getoption("check") and not config.getoption("runs_dir"):
        typed += f" --runs-dir={shlex.quote(str(runs_folder(config)))}"
    return typed


def run_name(option: str, text: str) -> str:
    """Check the name of a run, which becomes the name of its folder. Raises UsageError."""
    if text in NOT_RUNS or not re.fullmatch(r"[\w][\w.=+-]{0,99}", text, re.ASCII):
        raise pytest.UsageError(
            f"{option}: {text!r} can be no name of a run: letters, digits and . _ = + - (100 at most), and none of "
            f"{', '.join(NOT_RUNS)}, which lie beside the runs"
        )
    return text
