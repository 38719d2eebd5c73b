"""A real Chromium for tests of pages, and axe-core, which finds what keeps people from using a page.

A test is skipped, or fails, where one of them is missing (tests/programs.py).
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.programs import find, missing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
STANDARD = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
AXE = "axe_playwright_python"  # the package on PyPI that carries axe.min.js


def executable() -> str:
    """The path of Chromium: $CHROMIUM, else the first that is installed. Skips where there is none."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(find, NAMES)), None)
    if found is None:
        missing("Chromium", "apt-get install chromium, or name it: CHROMIUM=/path/to/chrome")
    return found


def axe_source() -> str:
    """The program text of axe-core: the file $AXE_MIN_JS, else that of the package. Skips where there is none."""
    named = os.environ.get("AXE_MIN_JS")
    if named:
        return Path(named).read_text(encoding="utf-8")
    package = importlib.util.find_spec(AXE)
    if package is None or package.origin is None:
        missing("axe-core", "pip install axe-playwright-python, or name it: AXE_MIN_JS=/path")
    return Path(package.origin).with_name("axe.min.js").read_text(encoding="utf-8")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser that is closed in the end."""
    path = executable()
    if importlib.util.find_spec("playwright") is None:
        missing("playwright", "pip install playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])  # root has no sandbox
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Browser, file: Path, width: int, height: int, *, dark: bool = False) -> Iterator[Page]:
    """A page in a window of its own. It must ask for nothing but its own file, and its script must have no error."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    page = context.new_page()
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    try:
        page.goto(file.as_uri())
        yield page
        assert [url for url in asked if url != file.as_uri() and not url.startswith("data:")] == []
        assert said == []
    finally:
        context.close()


def violations(page: Page, source: str) -> list[str]:
    """What axe-core finds: the rule, and the first elements that break it, each in a line."""
    page.evaluate(source)
    options: dict[str, Any] = {"runOnly": {"type": "tag", "values": list(STANDARD)}, "resultTypes": ["violations"]}
    found = page.evaluate("options => axe.run(document, options).then(result => result.violations)", options)
    return [
        f"{violation['id']}: {violation['help']} ({len(violation['nodes'])} times): {node['html'][:160]}"
        for violation in found
        for node in violation["nodes"][:3]
    ]
