"""`python -m platforms enable NAME…` and `disable NAME…`: edits `enabled:` of site.yaml and nothing else in it.

A person wrote the file, with comments and an order of its own. So the commands do not write it again from its values:
they replace the list at the position that the YAML parser reports. They keep the result only if it has the old values
and the new names. Where it has not (an alias), or a comment would be lost, they print the line that the person writes.
"""

from __future__ import annotations

import argparse
import datetime
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from platforms import atomic_file, checkout
from platforms.config import schema, yaml_lines
from platforms.config.loading import nearest
from platforms.job import ConfigError, RefusedError, names_a_secret

KEY = "enabled"
VARIABLE = "HPC_ML_BENCH_"  # begins the names of variables with the values of the site


def add_options(_parser: argparse.ArgumentParser) -> None:
    """Declare nothing: `enable` and `disable` have no options of their own."""


def main(options: argparse.Namespace) -> int:
    """Enable or disable platforms. Raises BenchError."""
    return enable(options) if options.command == "enable" else disable(options)


def enable(options: argparse.Namespace) -> int:
    """Enable platforms. Raises BenchError."""
    site = checkout.site_folder(options.site)
    known = checkout.file_names(site)
    for name in options.name:
        if name not in known:
            raise RefusedError(checkout.unknown(name, known))
    path = write(site, add=[name for name in options.name if name != "local"])
    _, platforms = checkout.load(site)
    for name in dict.fromkeys(options.name):
        if name == "local":
            print("local: runs without being enabled")
        else:
            print(f"{path}: {name} is enabled{_needed(platforms[name].missing)}")
        ended = platforms[name].ended_by(datetime.date.today())
        if ended is not None:
            print(f"{name}: {ended}: its tests are skipped")
    return 0


def _needed(missing: Sequence[str]) -> str:
    """What of the site a platform still needs. A secret never stands in a file, so it comes from the environment."""
    values = ", ".join(f"{key}: …" for key in missing if not names_a_secret(key))
    variables = " ".join(f"{VARIABLE}{key.upper()}" for key in missing if names_a_secret(key))
    hints = []
    if values:
        hints.append(f"; it needs `values: {{{values}}}` there, too")
    if variables:
        hints.append(f"; export {variables} before pytest, since secrets never reach YAML")
    return "".join(hints)


def disable(options: argparse.Namespace) -> int:
    """Disable platforms, even those whose file is gone. Raises BenchError."""
    site = checkout.site_folder(options.site)
    known = {*_names(site / "site.yaml"), *checkout.file_names(site)}
    for name in options.name:
        if name not in known:
            raise RefusedError(f"there is no platform {name!r} {nearest(name, known)}")
    path = write(site, remove=options.name)
    for name in dict.fromkeys(options.name):
        print(f"{path}: {name} is not enabled")
    return 0


def command(verb: str, names: Sequence[str], site: Path) -> str:
    """Write `python -m platforms enable NAME…` as it must be typed for this site."""
    return f"python -m platforms {verb} {' '.join(names)}{checkout.site_option(site)}"


def write(site: Path, add: Sequence[str] = (), remove: Sequence[str] = ()) -> Path:
    """Put names under `enabled:` of site.yaml, or take them out. The file stays untouched if that changes nothing.

    Returns the file. Raises ConfigError for a file with mistakes, RefusedError for one that cannot be written or that
    only a person can edit.
    """
    path = site / "site.yaml"
    try:
        text = path.read_bytes().decode("utf-8-sig") if path.exists() else ""
    except (OSError, UnicodeDecodeError):
        text = ""  # _names reports what is wrong with it
    before = _names(path)
    after = [name for name in dict.fromkeys((*before, *add)) if name not in remove]
    if after == before:
        return path
    line = f"{KEY}: [{', '.join(after)}]"
    try:
        edited = _edited(text, after)
    except yaml.YAMLError:  # an alias elsewhere refers to a name that was removed
        edited = None
    if edited is None or not _has_values(edited, text, after):
        raise RefusedError(
            f"{path}: write `{line}` yourself: its `{KEY}:` is written in a way that only you can change"
        )
    try:
        _replace(path, edited)
    except OSError as error:
        raise RefusedError(f"{path}: cannot be written ({error.strerror}); its line is `{line}`") from None
    return path


def _names(path: Path) -> list[str]:
    """List the enabled names. An `enabled:` without a value, which is a mistake elsewhere, is an empty list here."""
    document = yaml_lines.read(path) if path.exists() else yaml_lines.Document(path)
    if document.problems and not document.empty:
        raise ConfigError(document.problems)
    if (document.value or {}).get(KEY, ()) is None:
        return []
    return list(schema.load_site(path.parent).enabled)


def _has_values(edited: str, text: str, names: Sequence[str]) -> bool:
    """Tell whether the edited text has the values of `text`, and these names."""
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder) / "site.yaml"
        old = Path(folder) / "old.yaml"
        new.write_text(edited, encoding="utf-8")
        old.write_text(text, encoding="utf-8")
        wanted = {**(yaml_lines.read(old).value or {}), KEY: list(names)}
        return yaml_lines.read(new).value == wanted


def _replace(path: Path, text: str) -> None:
    """Write the whole file or nothing. A link stays: its target is replaced. The file keeps its rights."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    atomic_file.write_bytes(path, text.encode(), sync=True, mode=mode)


def _edited(text: str, names: Sequence[str]) -> str | None:
    """The text with these names in place of its own. None for a shape that only a person can change."""
    root = yaml.compose(text, yaml.BaseLoader)  # the loader in Python: its marks count characters, not bytes
    written = f" [{', '.join(names)}]"
    line_end = "\r\n" if "\r\n" in text else "\n"
    if root is None or (isinstance(root, yaml.ScalarNode) and not root.value):
        entries = []
    elif isinstance(root, yaml.MappingNode) and not root.flow_style:
        entries = [(key, value) for key, value in root.value if key.value == KEY]
    else:
        return None
    if not entries:
        gap = "" if not text or text.endswith("\n") else line_end
        return f"{text}{gap}{KEY}:{written}{line_end}"
    key, value = entries[0]
    begin = text.index(":", key.end_mark.index) + 1
    end = begin
    if value.value:
        # The mark behind a list without brackets is that of the next key.
        has_brackets = isinstance(value, yaml.ScalarNode) or value.flow_style
        end = value.end_mark.index if has_brackets else value.value[-1].end_mark.index
    elif isinstance(value, yaml.SequenceNode):
        end = value.end_mark.index
    if "#" in text[begin:end]:  # a comment on one of the names
        return None
    return f"{text[:begin]}{written}{text[end:]}"
