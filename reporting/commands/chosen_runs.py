"""The runs that `export bundle` takes: whole runs, by their ids, `latest`, a label, or conditions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from platforms.job import RefusedError
from platforms.rundir.session_history import read_sessions
from platforms.rundir.session_liveness import seems_alive
from reporting.commands.opened_site import OpenedSite
from reporting.compare.run_selection import parsed
from reporting.history.envelope import Envelope

LATEST = "latest"
NAMED = 5  # runs that a message names


def chosen_runs(site: OpenedSite, words: Sequence[str], runs: Path, problems: list[str]) -> list[Envelope]:
    """All lines of the runs that the words mean.

    Args:
        runs: the folder of the runs.
        problems: gets a sentence for each file of the history that cannot be read.

    Raises RefusedError where there is none, and for a run whose session still runs.
    """
    envelopes = site.read(problems=problems)
    if not envelopes:
        raise RefusedError(site.why_empty())
    run_ids: set[str] = set()
    for word in words:
        run_ids |= _meant(site, word, envelopes)
    for run_id in sorted(run_ids):
        if any(record.open and seems_alive(record) for record in read_sessions(runs / run_id)):
            raise RefusedError(f"{run_id}: its session still runs: take it when the session has ended")
    return [envelope for envelope in envelopes if envelope.key.run_id in run_ids]


def _meant(site: OpenedSite, word: str, envelopes: Sequence[Envelope]) -> set[str]:
    run_ids = list(dict.fromkeys(envelope.key.run_id for envelope in envelopes))
    if word == LATEST:
        return {run_ids[-1]}
    if word in run_ids:
        return {word}
    labels = {envelope.trial.label for envelope in envelopes}
    if "=" not in word and word not in labels:
        shown = ", ".join(run_ids[: -NAMED - 1 : -1])
        raise RefusedError(
            f"{word!r} is no run of {site.history} and no label; the last runs are {shown} "
            "(a selection is written as in platform=a100,date=2026-11-17)"
        )
    chosen = parsed(word, envelopes, site.settings.night_ends).chosen(envelopes)
    return {envelope.key.run_id for envelope in chosen}
