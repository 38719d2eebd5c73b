"""Writes a platform under `enabled:` in site.yaml and leaves every other line, and every comment, as it is."""

from __future__ import annotations

import os
import re
from pathlib import Path

from platforms import config
from platforms.job import ConfigError, RefusedError


def line(name: str, site: Path) -> str:
    """The line of site.yaml that enables what is enabled and `name`."""
    return f"enabled: [{', '.join(dict.fromkeys((*_enabled(site), name)))}]"


def is_enabled(name: str, site: Path) -> bool:
    return name in _enabled(site)


def _enabled(site: Path) -> tuple[str, ...]:
    """None in a file with mistakes, which whoever reads it next will hear of."""
    try:
        return config.load_site(site).enabled
    except ConfigError:
        return ()


def enable(name: str, site: Path) -> Path:
    """Add `name`, and return the file. Raises ConfigError for a file with mistakes, RefusedError for one that cannot be
    written or that only a person can edit."""
    path = site / "site.yaml"
    before = config.load_site(site)
    if name in before.enabled:
        return path
    draft = site / f".site.{os.getpid()}"
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        draft.mkdir(parents=True)
        try:
            (draft / "site.yaml").write_text(_edited(text, line(name, site), name), encoding="utf-8")
            if not _is_right(draft, before, name):
                raise RefusedError(
                    f"{path}: write `{line(name, site)}` yourself; its `enabled:` is not written as usual"
                )
            (draft / "site.yaml").replace(path)
        finally:
            (draft / "site.yaml").unlink(missing_ok=True)
            draft.rmdir()
    except OSError as error:
        raise RefusedError(f"{path}: cannot be written: {error.strerror}") from None
    return path


def _is_right(folder: Path, before: config.Site, name: str) -> bool:
    """Whether the edited file says what the old one said, and the new name."""
    try:
        after = config.load_site(folder)
    except ConfigError:
        return False
    return after == before.model_copy(update={"enabled": (*before.enabled, name)})


def _edited(text: str, whole: str, name: str) -> str:
    """`enabled: [a]` gets a name more, a list of `- a` lines a line more; without either there is a new line."""
    flow = re.search(r"^enabled:[ \t]*\[([^\]\n]*)\]", text, re.MULTILINE)
    if flow:
        return f"{text[: flow.start()]}{whole}{text[flow.end() :]}"
    block = re.search(
        r"^enabled:[ \t]*(#[^\n]*)?\n((?:[ \t]*#[^\n]*\n|[ \t]*\n)*([ \t]*)- [^\n]*(?:\n|\Z))+", text, re.MULTILINE
    )
    if block:
        end = "" if block[0].endswith("\n") else "\n"
        return f"{text[: block.end()]}{end}{block[3]}- {name}\n{text[block.end() :]}"
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{end}{whole}\n"
