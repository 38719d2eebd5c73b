"""Tests of the history, chosen by words of their ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from platforms.job import RefusedError
from reporting.commands.opened_site import OpenedSite
from reporting.history.envelope import Envelope
from reporting.history.reader import read
from reporting.phrases import listed

NAMED = 5  # tests that a message names at most


def selected(site: OpenedSite, words: Sequence[str], problems: list[str], *, all_sites: bool = False) -> list[Envelope]:
    """The envelopes of the site's tests whose ids have all these words in them.

    Args:
        problems: gets a sentence for each file that cannot be read.
        all_sites: take those of all sites that share the history.

    Raises:
        RefusedError: there is none.
    """
    envelopes = read(site.history, problems=problems) if all_sites else site.read(problems=problems)
    if not envelopes:
        raise RefusedError(site.why_empty())
    chosen = [envelope for envelope in envelopes if all(word in envelope.key.test for word in words)]
    if not chosen:
        raise RefusedError(
            f"{site.history}: no test has {' and '.join(map(repr, words))} in its id"
            f"{site.elsewhere(words)}; there are: {_tests(envelopes)}"
        )
    return chosen


def of_one_test(site: OpenedSite, words: Sequence[str], problems: list[str]) -> list[Envelope]:
    """The envelopes of the only test that has all these words in its id, or whose id is the only word.

    Args:
        problems: gets a sentence for each file that cannot be read.

    Raises:
        RefusedError: there is none, or more than one.
    """
    chosen = selected(site, words, problems)
    exact = [envelope for envelope in chosen if [envelope.key.test] == list(words)]
    found = exact or chosen
    tests = {envelope.key.test for envelope in found}
    if len(tests) > 1:
        raise RefusedError(f"{len(tests)} tests have {' and '.join(map(repr, words))} in their ids: {_tests(found)}")
    return found


def _tests(envelopes: Iterable[Envelope]) -> str:
    return listed(sorted({envelope.key.test for envelope in envelopes}), NAMED)
