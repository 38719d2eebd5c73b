"""What the pages show of a terminal is what the commands print: `python -m tests.docs.page_outputs` writes it again.

A comment before a block names its command, as in `<!-- capture: python -m reporting trend -->`. The command runs over
the made site, on a terminal of 80 columns, and `--site` is left out of what it prints.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.docs.blocks import PAGES, ROOT
from tests.docs.made_site import made_site

CAPTURE = re.compile(r"(<!-- capture: (.+?) -->\n+```\n)(.*?)(```\n)", re.DOTALL)


def captured(command: str, site: Path) -> str:
    """What a command of ours prints."""
    _python, *words = shlex.split(command)
    environ = {**os.environ, "COLUMNS": "80", "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *words, f"--site={site}"], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    return done.stdout.replace(f" --site={site}", "")


def renewed(page: Path, site: Path) -> str:
    """The text of a page with its captures made again."""
    text = page.read_text(encoding="utf-8")
    return CAPTURE.sub(lambda found: found[1] + captured(found[2], site) + found[4], text)


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        site = made_site(Path(scratch) / "site")
        for page in PAGES:
            text = renewed(page, site)
            if text != page.read_text(encoding="utf-8"):
                page.write_text(text, encoding="utf-8")
                print(f"{page.relative_to(ROOT)}: written again")


if __name__ == "__main__":
    main()
