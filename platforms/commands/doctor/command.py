"""`python -m platforms doctor NAME`: checks a platform step by step, and says what to do about the first failure."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from platforms import checkout, schedulers, transports
from platforms.commands.doctor import data_sets, node_checks
from platforms.config.schema import Platform, Site
from platforms.job import AwayError, BenchError, LoginNeeded, RefusedError
from platforms.schedulers import doctor_steps
from platforms.schedulers.doctor_steps import Step, StepResult, Visit


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--node", action="store_true", help="run a job of seconds, too, and look at what it finds")
    parser.add_argument("--size", choices=("smoke", "quick", "subset", "full"), help="of the data sets to look for")
    parser.add_argument("--runs-dir", type=Path, metavar="DIR", help="where the evidence of --node goes")


def main(options: argparse.Namespace) -> int:
    """Print one line for each step. Returns 0 when every step is ok or skipped, 1 after the first failure.

    Raises BenchError when there is no such platform, or a file cannot be read.
    """
    site = checkout.site_folder(options.site)
    settings, platforms = checkout.load(site)
    platform = checkout.find(options.name, platforms)
    if not _take("file", partial(_file, platform, site)):
        return 1
    visit = Visit(
        platform,
        transports.connect(platform),
        schedulers.connect(platform),
        checkout.benchmarks(),
        checkout.ROOT,
        options.size,
        checkout.site_option(site),
    )
    steps = list(_steps(visit))
    if options.node:
        steps.append(("node", partial(_node, options=options, site=site, settings=settings)))
    elif schedulers.backend_of(platform).only_jobs_see_their_machine:  # elsewhere the step `python` checks the machine
        steps.append(("node", _suggest_node))
    steps.append(("data", data_sets.data))
    if any(platform.obstacle(name) for name in visit.all_benchmarks):
        steps.insert(0, ("benchmarks", _benchmarks))
    try:
        for title, step in steps:
            if not _take(title, partial(step, visit)):
                return 1
    finally:
        visit.transport.close()
    print(_next(visit, settings, site))
    return 0


def _steps(visit: Visit) -> Iterator[Step]:
    """List the steps between those of the file and the node."""
    backend = schedulers.backend_of(visit.platform)
    yield from backend.doctor_steps(visit)
    if not backend.only_jobs_see_their_machine:
        yield "python", node_checks.python
    yield "policy", doctor_steps.policy
    yield from backend.doctor_trials(visit)


def _take(title: str, step: Callable[[], StepResult]) -> bool:
    """Take one step and print its line. Returns whether the step is ok or skipped."""
    try:
        result = step()
    except BenchError as error:
        may_pass = isinstance(error, AwayError) and not isinstance(error, LoginNeeded)
        hint = "; ask again later" if may_pass else ""
        print(f"failed   {title:<11}{error}{hint}", flush=True)
        return False
    outcome = "skipped" if result.skipped else "ok"
    print(f"{outcome:<9}{title:<11}{result.text}", flush=True)
    return True


def _file(platform: Platform, site: Path) -> StepResult:
    """Check that the file, which could be read, has all values, and that the machine has not ended."""
    ended = platform.ended_by(datetime.date.today())
    if ended is not None:
        raise RefusedError(
            f"{ended}; `pytest -m {platform.name} --dry-run` still shows its jobs. If the file is a copy for a "
            "machine of yours, remove `until:` from it"
        )
    if platform.missing:
        lines = ", ".join(f"{key}: …" for key in platform.missing)
        raise RefusedError(f"{platform.source} needs values: write `values: {{{lines}}}` into {site / 'site.yaml'}")
    return StepResult(f"{platform.source}: scheduler {platform.scheduler}, {platform.device}")


def _benchmarks(visit: Visit) -> StepResult:
    """Tell which benchmarks cannot run there, with what the platform's file says of each."""
    cannot_run = visit.platform.cannot_run
    if cannot_run is not None:
        return StepResult(
            f"none of the suite's benchmarks can run there: {cannot_run}. Tests with a command of their own run",
            skipped=True,
        )
    reasons = [f"{name} is skipped: {why}" for name in visit.all_benchmarks if (why := visit.platform.obstacle(name))]
    return StepResult(f"{', '.join(visit.benchmarks) or 'none'} can run; {'; '.join(reasons)}")


def _node(visit: Visit, options: argparse.Namespace, site: Path, settings: Site) -> StepResult:
    checkout.refuse_unready(visit.platform, site, settings)
    if visit.unmade:
        claims = ", ".join(visit.unmade)
        prepare = f"python -m platforms prepare {visit.platform.name}{visit.more}"
        raise RefusedError(f"no pod can start before {claims} is there; make it, and the data sets: {prepare}")
    return node_checks.node(visit, options.runs_dir or checkout.home(options.site) / "runs")


def _suggest_node(visit: Visit) -> StepResult:
    command = f"python -m platforms doctor {visit.platform.name} --node{visit.more}"
    return StepResult(f"`{command}` runs a job of seconds", skipped=True)


def _next(visit: Visit, settings: Site, site: Path) -> str:
    try:
        checkout.refuse_unready(visit.platform, site, settings)
    except RefusedError as error:
        return f"next: {error}"
    size = f" --size {visit.size}" if visit.size else ""
    if not visit.benchmarks:
        return "next: a test with a command of its own (docs/foreign-loops.md), or --try-unsupported (docs/outcomes.md)"
    if visit.unmade:
        return f"next: python -m platforms prepare {visit.platform.name}{size}{visit.more}"
    return f"next: pytest -m {visit.platform.name}{size}{visit.more}"
