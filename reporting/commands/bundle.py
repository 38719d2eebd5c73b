"""`python -m reporting bundle`: one file from which a stranger recomputes the numbers of some runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from platforms import atomic_file, checkout
from platforms.job import RefusedError, Role
from platforms.output import print_errors
from platforms.printable import printable
from reporting.bundle.evidence import JobEvidence, evidence_of
from reporting.bundle.packing import Bundle, RunPlace, packed
from reporting.bundle.unfinished import LivingRun, unfinished_runs
from reporting.bundle.verification import verify
from reporting.commands.opened_site import OpenedSite, open_site
from reporting.commands.output_file import refuse_place
from reporting.compare.run_selection import parsed
from reporting.history.envelope import Envelope
from reporting.tables.history_rows import is_measured

LATEST = "latest"
NAMED = 5  # runs that a message names at most


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        metavar="RUN",
        nargs="+",
        help="a run's id, latest, a label, or conditions as in platform=a100,date=2026-11-17 (docs/compare.md)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, required=True, help="the zip file to write")
    parser.add_argument("--identify", action="store_true", help="leave names of people, machines and paths as they are")
    parser.add_argument("--with-logs", action="store_true", help="the whole logs, not only the lines of the wire")
    parser.add_argument(
        "--unfinished",
        action="store_true",
        help="bundle what there is of a run whose session still runs; README.md and METHODS.md say what is missing",
    )
    parser.add_argument(
        "--runs-dir",
        metavar="DIR",
        type=Path,
        help="the folder of runs (default: runs/ of the suite, or of the folder that --site names)",
    )


def main(options: argparse.Namespace) -> int:
    """Write the bundle, and print its digest. Returns 1 if its numbers do not follow from its raw values."""
    refuse_place(options.output, "numbers.zip")
    site = open_site(options)
    runs = options.runs_dir or checkout.home(options.site) / "runs"
    if options.runs_dir is not None and not runs.is_dir():
        raise RefusedError(f"--runs-dir: there is no folder {runs}; it is the one in which each run has a folder")
    problems: list[str] = []
    envelopes = site.read(problems=problems)
    if not envelopes:
        raise RefusedError(site.why_empty())
    chosen = _chosen(site, options.runs, envelopes)
    unfinished = unfinished_runs(runs, chosen, envelopes)
    if not options.unfinished:
        _refuse_running(unfinished)
    with_numbers = [envelope for envelope in chosen if is_measured(envelope)]
    left_out = [_why_left_out(envelope) for envelope in chosen if not is_measured(envelope)]
    if not with_numbers:
        raise RefusedError(
            f"{' '.join(options.runs)}: no run has numbers, so there is nothing to bundle: {left_out[0]}"
        )
    evidence = [evidence_of(envelope, site.history, runs) for envelope in with_numbers]
    bundle = packed(
        evidence,
        left_out,
        _place(site, runs),
        identify=options.identify,
        with_logs=options.with_logs,
        unfinished=[run.sentence for run in unfinished],
    )
    atomic_file.write_bytes(options.output, bundle.content)
    _print_summary(options.output, bundle, evidence)
    print_errors(problems)
    found = verify(options.output, bundle.digest)
    for finding in found.findings:
        print(f"error: {printable(f'{finding.file}: {finding.said}')}", file=sys.stderr)
    if found.findings:
        print(f"error: {options.output}: its numbers do not follow from its raw values, as above", file=sys.stderr)
        return 1
    return 0


# --- which runs ---


def _chosen(site: OpenedSite, words: Sequence[str], envelopes: Sequence[Envelope]) -> list[Envelope]:
    """The jobs that the words mean, each once, in the order of their starts."""
    chosen: dict[tuple[object, ...], Envelope] = {}
    for word in words:
        for envelope in _of_word(site, word, envelopes):
            chosen[tuple(envelope.key)] = envelope
    return sorted(chosen.values(), key=lambda envelope: (envelope.time_s, envelope.key.test, envelope.key.trial))


def _of_word(site: OpenedSite, word: str, envelopes: Sequence[Envelope]) -> list[Envelope]:
    run_ids = dict.fromkeys(envelope.key.run_id for envelope in envelopes)
    typed = Path(word).name if Path(word).is_dir() else word
    if word == LATEST:
        typed = list(run_ids)[-1]
    if typed in run_ids:
        return [envelope for envelope in envelopes if envelope.key.run_id == typed]
    labels = {envelope.trial.label for envelope in envelopes}
    if "=" not in word and word not in labels:
        shown = ", ".join(list(run_ids)[: -NAMED - 1 : -1])
        raise RefusedError(
            f"{word!r} is no run of {site.history} and no label; the last runs are {shown} "
            "(a selection is written as in platform=a100,date=2026-11-17)"
        )
    return parsed(word, envelopes, site.settings.night_ends).chosen(envelopes)


def _refuse_running(unfinished: Sequence[LivingRun]) -> None:
    """Raise RefusedError for a run of which a session goes on: a minute later its bundle would be another one."""
    for run in unfinished:
        if run.is_running:
            done = f"results of {run.tests - run.without_result} of its {run.tests} tests are there"
            raise RefusedError(
                f"{run.run_id}: its session still runs, and {done}: bundle it when the session has ended, or type "
                "--unfinished to bundle what there is, which README.md and METHODS.md then say"
            )


def _why_left_out(envelope: Envelope) -> str:
    what = f"{envelope.key.test} of {envelope.key.run_id}"
    if envelope.trial.role is not Role.MEASURE:
        return f"{what} is a job of the kind {envelope.trial.role.value}, which has no row in a table"
    return f"{what} recorded no numbers: {envelope.outcome.value}"


# --- names ---


def _place(site: OpenedSite, runs: Path) -> RunPlace:
    folders = (runs, site.history, site.folder, checkout.ROOT, Path.home())
    return RunPlace.here(folders, list(_platform_files(site.folder)))


def _platform_files(site: Path) -> Iterator[object]:
    """What the files of the site say, as far as they can be read: they name login nodes, accounts and registries."""
    for path in (site / "site.yaml", *sorted((site / "platforms").glob("*.yaml"))):
        try:
            yield yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            continue


# --- what is printed ---


def _print_summary(path: Path, bundle: Bundle, evidence: Sequence[JobEvidence]) -> None:
    jobs = "1 job" if len(evidence) == 1 else f"{len(evidence)} jobs"
    run_ids = {one.envelope.key.run_id for one in evidence}
    of_runs = "1 run" if len(run_ids) == 1 else f"{len(run_ids)} runs"
    print(f"{path}: {jobs} of {of_runs}, {len(bundle.content) / 1e6:.1f} MB")
    for sentence in bundle.contents.unfinished:
        print(f"not finished: {printable(sentence)}")
    missing: dict[str, list[str]] = {}
    for record in bundle.records:
        for sentence in record.missing:
            missing.setdefault(sentence, []).append(record.folder)
    for sentence, folders in missing.items():
        more = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
        print(f"missing: {printable(folders[0])}{more}: {printable(sentence)}")
    left_out = bundle.contents.left_out
    for sentence in left_out[:NAMED]:
        print(f"left out: {printable(sentence)}")
    if len(left_out) > NAMED:
        print(f"left out: {len(left_out) - NAMED} more, which README.md in the bundle names")
    if bundle.contents.identified:
        print("names are as they were (--identify)")
    for kind, (names, places) in (bundle.contents.replaced or {}).items():
        ending = "" if names == 1 else "es" if kind.endswith("s") else "s"
        print(f"replaced: {names or 'all'} {kind}{ending} in {places} {'place' if places == 1 else 'places'}")
    if not bundle.contents.identified:
        print("free text was searched for known names, addresses, URLs and paths only: read it before you publish it")
    print(f"digest: {bundle.digest}")
    print(f"check it: python -m reporting verify {path} --digest {bundle.digest}")
