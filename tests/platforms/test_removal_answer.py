"""The question before a removal: only a clear yes removes."""

from __future__ import annotations

import io
import sys

import pytest

from platforms.output import confirm_removal


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "removes"), [("y\n", True), ("YES \n", True), ("\n", False), ("n\n", False), ("", False)]
)
def test_only_a_clear_yes_removes(typed: str, removes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    assert confirm_removal(yes=False, dry_run=False) is removes


def test_nobody_is_asked_where_the_answer_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert confirm_removal(yes=True, dry_run=False)
    assert not confirm_removal(yes=True, dry_run=True)
    assert not confirm_removal(yes=False, dry_run=False)
