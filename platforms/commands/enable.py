"""`python -m platforms enable NAME…` and `disable NAME…`: edits `enabled:` of site.yaml and nothing else in it.

The file is a person's, with comments and an order of its own, so it is not written again from its values: names are put
in and taken out at the places that the YAML parser tells, and the result is kept only if it says what the file said,
with these names. Where it would not (an alias, for one) the person is told what to write.
"""

from __future__ import annotations

import argparse
import datetime
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from platforms import atomic_file, checkout
from platforms.config import schema, yaml_lines
from platforms.config.loading import nearest
from platforms.job import ConfigError, RefusedError

KEY = "enabled"


def add_options(_parser: argparse.ArgumentParser) -> None:
    """`enable` and `disable` have no options of their own."""


def main(options: argparse.Namespace) -> int:
    """Enable or disable platforms. Raises BenchError."""
    return enable(options) if options.command == "enable" else disable(options)


def enable(options: argparse.Namespace) -> int:
    """Enable platforms. Raises BenchError."""
    site = checkout.site_folder(options.site)
    known = _files(site)
    for name in options.name:
        if name not in known:
            raise RefusedError(checkout.unknown(name, known))
    path = write(site, add=[name for name in options.name if name != "local"])
    _, platforms = checkout.load(site)
    for name in dict.fromkeys(options.name):
        needs = ", ".join(f"{key}: …" for key in platforms[name].missing)
        more = f"; it needs `values: {{{needs}}}` there, too" if needs else ""
        print("local: runs without being enabled" if name == "local" else f"{path}: {name} is enabled{more}")
        if (ended := platforms[name].ended_by(datetime.date.today())) is not None:
            print(f"{name}: {ended}: its tests are skipped")
    return 0


def disable(options: argparse.Namespace) -> int:
    """Disable platforms, those of which there is no file any more among them. Raises BenchError."""
    site = checkout.site_folder(options.site)
    known = {*_names(site / "site.yaml"), *_files(site)}
    for name in options.name:
        if name not in known:
            raise RefusedError(f"there is no platform {name!r} {nearest(name, known)}")
    path = write(site, remove=options.name)
    for name in dict.fromkeys(options.name):
        print(f"{path}: {name} is not enabled")
    return 0


def command(verb: str, names: Sequence[str], site: Path) -> str:
    """`python -m platforms enable NAME…`, as it must be typed for this site."""
    return f"python -m platforms {verb} {' '.join(names)}{checkout.site_option(site)}"


def write(site: Path, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Path:
    """Put names under `enabled:` of site.yaml, or take them out; a file that says so already is not touched.

    Returns the file. Raises ConfigError for a file with mistakes, RefusedError for one that cannot be written or that
    only a person can edit.
    """
    path = site / "site.yaml"
    try:
        text = path.read_bytes().decode("utf-8-sig") if path.exists() else ""
    except (OSError, UnicodeDecodeError):
        text = ""  # what is wrong with it, reading it as a site says
    before = _names(path)
    after = [name for name in dict.fromkeys((*before, *add)) if name not in remove]
    if after == before:
        return path
    line = f"{KEY}: [{', '.join(after)}]"
    try:
        edited = _edited(text, before, after)
    except yaml.YAMLError:  # a name went that something else refers to
        edited = None
    if edited is None or not _says(edited, text, after):
        raise RefusedError(
            f"{path}: write `{line}` yourself: its `{KEY}:` is written in a way that only you can change"
        )
    try:
        _replace(path, edited)
    except OSError as error:
        raise RefusedError(f"{path}: cannot be written ({error.strerror}); its line is `{line}`") from None
    return path


def _files(site: Path) -> set[str]:
    """The names of platforms that have a file, whatever is in it."""
    return {path.stem for folder in (checkout.SHIPPED, site / "platforms") for path in folder.glob("*.yaml")}


def _names(path: Path) -> list[str]:
    """What is enabled. An `enabled:` with nothing behind it, which is a mistake elsewhere, is an empty list here."""
    document = yaml_lines.read(path) if path.exists() else yaml_lines.Document(path)
    if document.problems and not document.empty:
        raise ConfigError(document.problems)
    if (document.value or {}).get(KEY, ()) is None:
        return []
    return list(schema.load_site(path.parent).enabled)


def _says(edited: str, text: str, names: Sequence[str]) -> bool:
    """Whether the edited text says what `text` said, and has these names."""
    with tempfile.TemporaryDirectory() as folder:
        new, old = Path(folder) / "site.yaml", Path(folder) / "old.yaml"
        new.write_text(edited, encoding="utf-8")
        old.write_text(text, encoding="utf-8")
        wanted = {**(yaml_lines.read(old).value or {}), KEY: list(names)}
        return yaml_lines.read(new).value == wanted


def _replace(path: Path, text: str) -> None:
    """Whole or not at all, through a link to the file that it leads to, with the rights that the file had."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    atomic_file.write_bytes(path, text.encode(), sync=True, mode=mode)


# --- the text --------------------------------------------------------------------------------------------------------


def _edited(text: str, before: Sequence[str], after: Sequence[str]) -> str | None:
    """The text with the names of `after`; None where it is not known how."""
    root = yaml.compose(text, yaml.BaseLoader)  # the one in Python, whose marks count characters
    if root is None or (isinstance(root, yaml.ScalarNode) and not root.value):
        return _appended(text, after)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return None
    found = [(key, value) for key, value in root.value if key.value == KEY]
    if not found:
        return _appended(text, after)
    key, value = found[0]
    if isinstance(value, yaml.ScalarNode):
        colon = text.index(":", key.end_mark.index) + 1
        rest = value.end_mark.index if value.value else colon
        return f"{text[:colon]} [{', '.join(after)}]{text[rest:]}"
    for name in [name for name in after if name not in before]:
        text = _with(text, name)
    for name in [name for name in before if name not in after]:
        text = _without(text, name)
    return text


def _appended(text: str, names: Sequence[str]) -> str:
    end = _line_end(text)
    gap = "" if not text or text.endswith("\n") else end
    return f"{text}{gap}{KEY}: [{', '.join(names)}]{end}"


def _with(text: str, name: str) -> str:
    """With one name more, behind the last."""
    _, value = _entry(text)
    if not value.value:
        bracket = text.index("[", value.start_mark.index) + 1
        return f"{text[:bracket]}{name}{text[bracket:]}"
    last = value.value[-1].end_mark.index
    if value.flow_style:
        return f"{text[:last]}, {name}{text[last:]}"
    line = _end_of_line(text, last)
    gap = "" if text[:line].endswith("\n") else _line_end(text)
    indent = " " * value.start_mark.column
    return f"{text[:line]}{gap}{indent}- {name}{_line_end(text)}{text[line:]}"


def _without(text: str, name: str) -> str:
    """With one name less, and the comment on its line, if it has a line of its own."""
    key, value = _entry(text)
    names = value.value
    number = next(index for index, node in enumerate(names) if node.value == name)
    node = names[number]
    line, end = text.rfind("\n", 0, node.start_mark.index) + 1, _end_of_line(text, node.end_mark.index)
    if not value.flow_style:
        rest = f"{text[:line]}{text[end:]}"
        if len(names) > 1:
            return rest
        colon = text.index(":", key.end_mark.index) + 1
        return f"{rest[:colon]} []{rest[colon:]}"
    before, behind = text[line : node.start_mark.index], text[node.end_mark.index : end].lstrip().removeprefix(",")
    if not before.strip() and (not behind.strip() or behind.lstrip().startswith("#")):
        return f"{text[:line]}{text[end:]}"
    if number + 1 < len(names):
        return f"{text[: node.start_mark.index]}{text[names[number + 1].start_mark.index :]}"
    begin = names[number - 1].end_mark.index if number else node.start_mark.index
    return f"{text[:begin]}{text[node.end_mark.index :]}"


def _entry(text: str) -> tuple[yaml.ScalarNode, yaml.SequenceNode]:
    """The key and its list, where they stand now."""
    root: Any = yaml.compose(text, yaml.BaseLoader)
    return next((key, value) for key, value in root.value if key.value == KEY)


def _end_of_line(text: str, index: int) -> int:
    """Where the next line begins."""
    return text.find("\n", index) + 1 or len(text)


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
