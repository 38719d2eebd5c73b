"""Tests of the history, chosen by words of their ids."""

from __future__ import annotations

import argparse
import difflib
import shlex
from collections.abc import Collection, Iterable, Sequence

from platforms.job import RefusedError
from reporting.commands.opened_site import OpenedSite
from reporting.history.envelope import Envelope
from reporting.phrases import listed

NAMED = 12  # tests or platforms that a message names at most
WORDS = "only tests whose ids have all these words in them, or ids of tests (default: all tests of the history)"


def add_words(parser: argparse.ArgumentParser, words: str = WORDS) -> None:
    """Declare the words that `selected` reads."""
    parser.add_argument("selection", metavar="WORD", nargs="*", help=words)


def selected(site: OpenedSite, words: Sequence[str], problems: list[str], *, visits: bool = True) -> list[Envelope]:
    """The envelopes of the site's tests whose ids are the words. If these are no ids, of those that have all of them.

    Args:
        problems: gets a sentence for each file that cannot be read.
        visits: False for what asks the gate alone (`reader.read`).

    Raises:
        RefusedError: there is none.
    """
    if words:  # lines of other tests need not be understood then, which is ten times as fast
        problems_of_named: list[str] = []
        named = site.read(tests=words, problems=problems_of_named, visits=visits)
        if {envelope.key.test for envelope in named} == set(words):
            problems += problems_of_named
            return named
    envelopes = site.read(problems=problems, visits=visits)
    if not envelopes:
        raise RefusedError(site.why_empty())
    chosen = [envelope for envelope in envelopes if all(word in envelope.key.test for word in words)]
    if not chosen:
        tests = {envelope.key.test for envelope in envelopes}
        raise RefusedError(
            f"{site.history}: no test has {' and '.join(map(repr, words))} in its id "
            f"{nearest_of(' '.join(words), tests)}"
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
    one_of(words, {envelope.key.test for envelope in chosen})
    return chosen


def of_each_test(envelopes: Iterable[Envelope]) -> dict[str, list[Envelope]]:
    """The envelopes of each test, by its id, in the order in which they are."""
    tests: dict[str, list[Envelope]] = {}
    for envelope in envelopes:
        tests.setdefault(envelope.key.test, []).append(envelope)
    return tests


def one_of(words: Sequence[str], tests: Collection[str]) -> str:
    """The only test that has all these words in its id. Raises RefusedError where there are several."""
    found = sorted(test for test in tests if all(word in test for word in words))
    if len(found) == 1:
        return found[0]
    said = f"{len(found)} tests have {' and '.join(map(repr, words))} in their ids; name one of them:"
    shown = [f"  {shlex.quote(test)}" for test in found[:NAMED]]
    if len(found) > NAMED:
        shown.append(f"  and {len(found) - NAMED} more")
    raise RefusedError("\n".join([said, *shown]))


def nearest_of(name: str, known: Collection[str]) -> str:
    """The known name that is nearest to one that nothing has; if none is near, the first known ones."""
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"(did you mean {close[0]!r}?)"
    return f"(known: {listed(sorted(known), NAMED)})"
