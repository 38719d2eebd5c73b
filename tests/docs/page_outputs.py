"""What the pages show of a terminal is what the commands print: `python -m tests.docs.page_outputs` writes it again.

A comment before a block names its command, as in `<!-- capture: python -m reporting trend -->`. The command runs over
the made site, on a terminal of 80 columns, and `--site` is left out of what it prints.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

from reporting.__main__ import main
from tests.docs.blocks import PAGES, ROOT
from tests.docs.made_site import made_site

CAPTURE = re.compile(r"(<!-- capture: (.+?) -->\n+```\n)(.*?)(```\n)", re.DOTALL)


def captured(command: str, site: Path) -> str:
    """What a command of `python -m reporting` prints."""
    words = shlex.split(command.removeprefix("python -m reporting "))
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with mock.patch.dict(os.environ, COLUMNS="80"), redirect_stdout(out):
        assert main([*words, f"--site={site}"]) == 0
    out.seek(0)
    return out.read().replace(f" --site={site}", "")


def renewed(page: Path, site: Path) -> str:
    """The text of a page with its captures made again."""
    text = page.read_text(encoding="utf-8")
    return CAPTURE.sub(lambda found: found[1] + captured(found[2], site) + found[4], text)


def write_again() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        site = made_site(Path(scratch) / "site")
        for page in PAGES:
            text = renewed(page, site)
            if text != page.read_text(encoding="utf-8"):
                page.write_text(text, encoding="utf-8")
                print(f"{page.relative_to(ROOT)}: written again")


if __name__ == "__main__":
    write_again()
