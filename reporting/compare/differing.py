"""What else is said of two groups of runs: provenance that changed in some of them, and notes from between them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from reporting.compare.causes import GROUP, ProvenanceChange, provenance_values
from reporting.compare.placement import LEVELS
from reporting.history.envelope import Envelope
from reporting.history.nights import night_of
from reporting.references.answers import Note, References

DAY = datetime.timedelta(days=1)


def changed_in_part(before: Sequence[Envelope], after: Sequence[Envelope]) -> list[ProvenanceChange]:
    """The provenance of which some values are on both sides and others are not.

    Nodes and their switches are left out: jobs share them.
    """
    old = provenance_values(before)
    new = provenance_values(after)
    names = sorted(old.keys() & new.keys() - {"nodes", *LEVELS, GROUP})
    return [
        ProvenanceChange(name, frozenset(old[name]), frozenset(new[name]))
        for name in names
        if old[name] & new[name] and old[name] != new[name]
    ]


def notes_between(
    before: Sequence[Envelope], after: Sequence[Envelope], references: References, night_ends: datetime.time
) -> list[Note]:
    """What people have noted about the platforms from the last night of the earlier side to the day after the first
    night of the later one. Nothing if the two sides overlap in time.
    """
    old = [night_of(run.time_s, night_ends) for run in before]
    new = [night_of(run.time_s, night_ends) for run in after]
    earlier, later = sorted((old, new), key=min)
    if max(earlier) > min(later):
        return []
    platforms = sorted({run.platform for run in (*before, *after)})
    return [note for name in platforms for note in references.notes_on(name, max(earlier), min(later) + DAY)]
