"""`python -m reporting nodes NAME`: which nodes of a platform are slow; with --job, is it me or the machine?"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from platforms import checkout
from platforms.config.schema import Platform
from platforms.job import BenchError, RefusedError
from platforms.nodes import node_names
from platforms.printable import printable
from platforms.schedulers import backend_of
from reporting.commands import answering
from reporting.commands.opened_site import OpenedSite, open_site
from reporting.commands.tonight import add_tonight, end_of_tonight, until_tonight
from reporting.fleet import in_common
from reporting.fleet.node_runs import NodeJob, NodeRun, node_jobs_of, node_runs
from reporting.fleet.nodes import WHY_NOT_JUDGED, NodeRecord, Standing, records_of
from reporting.fleet.sentences import JobAnswer, answer, is_of_job, job_answer, minute
from reporting.history.measured import JobNumbers
from reporting.phrases import listed, percent, plain, size
from reporting.tables.grouped import Table
from reporting.tables.text import text

HEADINGS = ("node", "runs", "deviation", "error", "last run", "suspicions", "verdict")
NUMBERS = ("runs", "deviation", "error", "suspicions", "value", "change", "limit")
RUNS_SHOWN = 5  # the last ones of each node of a job
UNMEASURED_SHOWN = 20
_FIRST = {Standing.SLOW: 0, Standing.SUSPECT: 1}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("platform", metavar="NAME", help="a platform, as its file or the history names it")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--job", metavar="ID", help="is it me or the machine? The nodes on which this job of any user runs or has run"
    )
    which.add_argument("--nodes", metavar="LIST", help="the same for nodes, as in n07,n10..n12 or n[10-12]")
    add_tonight(parser)


def main(options: argparse.Namespace) -> int:
    """Print the table. Returns 1 if a node that is shown is slow; with --job if it was slow at the job's time."""
    site = open_site(options)
    answering.refuse_unknown_platform(site, options.platform)
    asked = _asked_nodes(options, site)
    problems: list[str] = []
    jobs = _jobs(options, site, problems)
    runs = node_runs(jobs.on_one_node, site.settings.night_ends)
    # A scheduler knows the nodes of today.
    today = () if asked or options.tonight else _nodes_of_scheduler(options.platform, site, problems)
    records = records_of(runs, asked or today)
    fleet = list(records.values())
    shown = [records[name] for name in asked] if asked else fleet
    found = JobAnswer(answer(shown), (), any(record.standing is Standing.SLOW for record in shown))
    if options.job is not None:
        found = job_answer(shown, options.job, _started_s(options, site, jobs))
    if asked:  # a user asks, who cannot take a node out of service
        _print(found.text, [_table(options.platform, shown, fleet), _runs_table(shown, found.runs)])
    else:
        _print("", [_table(options.platform, shown, fleet)])
        _print_drain_lines(options.platform, site, shown)
    sys.stdout.flush()
    answering.warn(problems)
    return int(found.is_slow)


def _asked_nodes(options: argparse.Namespace, site: OpenedSite) -> tuple[str, ...]:
    """The nodes that --job and --nodes mean; () without them. Raises RefusedError."""
    if options.job is not None:
        try:
            platform = _platform(options.platform, site)
            found = backend_of(platform).nodes_of_job(platform, options.job)
        except BenchError as error:
            raise RefusedError(f"--job {options.job}: {error} (--nodes names its nodes instead: n07,n08)") from None
        if not found:
            raise RefusedError(f"--job {options.job}: it has no node yet (ask again once it runs)")
        return found
    if options.nodes is None:
        return ()
    try:
        return node_names(options.nodes)
    except ValueError as error:
        raise RefusedError(f"--nodes: {error}") from None


def _started_s(options: argparse.Namespace, site: OpenedSite, jobs: _Jobs) -> float | None:
    """When the job of --job started, by its scheduler, else by the history; None if neither says so."""
    try:
        platform = _platform(options.platform, site)
        started_s = backend_of(platform).start_of_job(platform, options.job)
    except BenchError:
        started_s = None
    return jobs.asked_started_s if started_s is None else started_s


@dataclass
class _Jobs:
    """The jobs of a platform.

    Attributes:
        number: of all of them.
        asked_started_s: when the last one started whose id is that of --job; None if there is none.
    """

    asked_id: str | None
    number: int = 0
    asked_started_s: float | None = None
    on_one_node: list[NodeJob] = field(default_factory=list)

    def take(self, jobs: Iterable[JobNumbers]) -> _Jobs:
        self.on_one_node = node_jobs_of(map(self._seen, jobs))
        return self

    def _seen(self, job: JobNumbers) -> JobNumbers:
        self.number += 1
        if self.asked_id is not None and is_of_job(job.job_id, self.asked_id):
            self.asked_started_s = max(job.time_s, self.asked_started_s or job.time_s)
        return job


def _jobs(options: argparse.Namespace, site: OpenedSite, problems: list[str]) -> _Jobs:
    """The jobs of the platform. Raises RefusedError if none measured one node alone, or the history is empty."""
    found = site.measured(
        lambda jobs: _Jobs(options.job).take(jobs),
        problems,
        is_wanted=lambda like: like.platform == options.platform,
        before_s=end_of_tonight(options, site),
    )
    if not found.number:
        envelopes = site.read()
        if not envelopes:
            raise RefusedError(site.why_empty())
        until_tonight([run for run in envelopes if run.platform == options.platform], options, site)
    if not found.on_one_node:
        raise RefusedError(
            f"{site.history}: the history has {found.number} jobs of {options.platform}, and none of them measured one "
            "node alone; `pytest --each-node` visits each node"
        )
    return found


def _platform(name: str, site: OpenedSite) -> Platform:
    """The platform as its file has it. Raises BenchError where it has none, or lacks values of the site."""
    platform = checkout.find(name, checkout.load(site.folder)[1])
    if platform.missing:
        raise RefusedError(f"{platform.source} needs values of the site: {', '.join(platform.missing)}")
    return platform


def _nodes_of_scheduler(name: str, site: OpenedSite, problems: list[str]) -> list[str]:
    """All nodes of a platform. If its scheduler cannot be asked, `problems` gets a sentence, and there is none."""
    try:
        if name not in checkout.load(site.folder)[1]:
            return []  # a platform of the history alone, as an imported one
        platform = _platform(name, site)
        return [node.name for node in backend_of(platform).nodes(platform)]
    except BenchError as error:
        problems.append(f"{error}: nodes without runs are not shown")
        return []


def _print(sentence: str, tables: Sequence[Table]) -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    lines = text(tables, width)
    if sentence:
        said = [sentence] if width is None else textwrap.wrap(sentence, width)
        lines = [*said, "", *lines]
    for line in lines:
        print(printable(line))


def _print_drain_lines(name: str, site: OpenedSite, records: Sequence[NodeRecord]) -> None:
    """How each slow node is taken out of service; nothing where the platform's file or its scheduler has no command."""
    slow = [record for record in records if record.standing is Standing.SLOW]
    if not slow:
        return
    try:
        backend = backend_of(_platform(name, site))
    except BenchError:
        return  # a platform of the history alone
    typed = []
    for record in slow:
        drain = backend.drain_command(record.name, f"slow: {percent(record.deviation)}")
        if drain is not None:
            typed.append(f"  {printable(drain)}")
    if typed:
        print("\n".join(["\nTo take it out of service until it is repaired:", *typed]))


def _table(platform: str, records: Sequence[NodeRecord], fleet: Sequence[NodeRecord]) -> Table:
    """A line for each node that was measured, those that are slow first; the others in a note."""
    measured = [record for record in records if record.runs]
    rows = [_cells(record) for record in sorted(measured, key=lambda record: _FIRST.get(record.standing, 2))]
    notes = [record.sentence for record in measured if record.standing in _FIRST]
    notes += in_common.seen(fleet, measured)
    if any(record.standing is Standing.UNKNOWN for record in measured):
        notes.append(f"not judged: {WHY_NOT_JUDGED}")
    unmeasured = [record.name for record in records if not record.runs]
    if unmeasured:
        notes.append(f"never measured: {listed(unmeasured, UNMEASURED_SHOWN)}")
    title = f"{platform}: each node beside the other nodes; negative is slower"
    return Table(title, HEADINGS, tuple(rows), 1, tuple(notes), NUMBERS)


def _cells(record: NodeRecord) -> tuple[str, ...]:
    return (
        record.name,
        str(len(record.runs)),
        percent(record.deviation),
        size(record.error, 1),
        str(record.runs[-1].night),
        str(record.suspicions),
        record.standing,
    )


def _runs_table(records: Sequence[NodeRecord], used: Sequence[NodeRun]) -> Table:
    """The last runs of each node, by which its verdict can be checked, and those that the answer uses."""
    rows = []
    for record in records:
        older = [run for run in record.runs[:-RUNS_SHOWN] if run in used] if used else []
        rows += [_run_cells(run) for run in [*older, *record.runs[-RUNS_SHOWN:]]]
    headings = ("node", "started", "test", "value", "change", "limit", "beside", "night", "run")
    title = f"the last runs of each node, {RUNS_SHOWN} at most"
    if used:
        title += ", and those of the job's time"
    return Table(title, headings, tuple(rows), 3, (), NUMBERS)


def _run_cells(run: NodeRun) -> tuple[str, ...]:
    job = run.job
    value = "-" if run.measured is None else f"{plain(run.measured.value, 5)} {run.measured.unit}"
    limit = "-" if run.limit is None else percent(-run.limit)
    started = minute(job.started_s)
    beside = run.beside or "-"
    return job.node, started, job.test, value, percent(run.change), limit, beside, str(run.night), job.run_id
