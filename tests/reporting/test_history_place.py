"""Where the history lies: --history, else site.yaml, else the site's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from platforms.config.schema import Site
from reporting.history.place import history_folder

FOLDER = Path("/srv/site")


@pytest.mark.parametrize(
    ("typed", "in_site_yaml", "place"),
    [
        (None, None, "/srv/site/history"),
        (None, "nights", "/srv/site/nights"),
        (None, "/shared/history", "/shared/history"),
        (None, "~/history", "/home/a/history"),
        ("here", "/shared/history", "here"),
        ("~/here", None, "/home/a/here"),
    ],
)
def test_the_history_lies_where_it_is_said_to(
    monkeypatch: pytest.MonkeyPatch, typed: str | None, in_site_yaml: str | None, place: str
) -> None:
    monkeypatch.setenv("HOME", "/home/a")
    assert history_folder(typed, Site(history=in_site_yaml), FOLDER) == Path(place)
