"""One answer is one small YAML file: how it is written, read and checked.

The file's last line is the SHA-256 of the lines above it, so that `head -n -1 FILE | sha256sum` prints it. The key
`after` holds the hashes of the answers before it. docs/answers.md shows the files.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Literal

from platforms.config import yaml_lines
from platforms.job import RefusedError
from reporting.references.answers import Acceptance, Acknowledgement, Author, Note, Pause
from reporting.references.kept_in_git import log_command

Answer = Acceptance | Acknowledgement | Note | Pause

COMMENT = "# Written by `python -m reporting`, explained in docs/answers.md. Do not edit it: a new answer replaces it."
HASH = "hash"  # the key of the last line
_PLAIN = re.compile(r"[A-Za-z0-9][\w./%+-]*( [\w./%(,;+-]+)*", re.ASCII)  # text that YAML reads as it is written


@dataclass(frozen=True)
class AnswerFile:
    """A file that was read.

    Attributes:
        answer: None when the file cannot be read, or was changed by hand.
        hash: as it stands in the file; empty when it has none.
        after: the hashes of the answers before this one.
        problems: `file:line: key: what`.
    """

    path: Path
    answer: Answer | None
    hash: str = ""
    after: tuple[str, ...] = ()
    after_line: int = 1
    problems: Sequence[str] = ()


def kind_of(answer: Answer) -> str:
    """The command that gives such an answer; the value of the file's first key."""
    match answer:
        case Acceptance():
            return "accept"
        case Acknowledgement():
            return "ack"
        case Note():
            return "note"
        case Pause():
            return "pause"


def subject_of(answer: Answer) -> str:
    """What the answer is about: the id of a test, or a platform's name."""
    match answer:
        case Acceptance() | Acknowledgement():
            return answer.test
        case Note():
            return answer.platform
        case Pause():
            return answer.name


def hash_of(text: str) -> str:
    """The hash that stands in a file's last line; `text` is everything above it. Windows' line ends do not matter."""
    return hashlib.sha256(text.replace("\r\n", "\n").encode()).hexdigest()


def text_of(answer: Answer, after: Sequence[str]) -> tuple[str, str]:
    """The whole text of an answer's file, and its hash.

    Args:
        after: the hashes of the answers before it.

    Raises:
        RefusedError: a value has a character that cannot be printed.
    """
    keys = {"answer": kind_of(answer)} | _values(answer)
    keys |= {"by": answer.author.by, "written": answer.author.at.isoformat(timespec="seconds")}
    lines = [COMMENT]
    for key, value in keys.items():
        if isinstance(value, tuple):
            lines.append(f"{key}: {_written_list(key, value)}")
        elif isinstance(value, float | int):
            lines.append(f"{key}: {value!r}")
        else:
            lines.append(f"{key}: {_written(key, value)}")
    lines.append(f"after: {_written_list('after', tuple(sorted(after)))}")
    above = "\n".join(lines) + "\n"
    digest = hash_of(above)
    return f"{above}{HASH}: {_written(HASH, digest)}\n", digest


def _values(answer: Answer) -> dict[str, str | float | tuple[str, ...]]:
    match answer:
        case Acceptance():
            return {
                "test": answer.test,
                "metric": answer.metric,
                "better": answer.better,
                "comparability": answer.comparability,
                "since": answer.since.isoformat(),
                "level": _quantity(answer.level, answer.unit),
                "error": _percent(answer.error),
                "scale": _percent(answer.scale),
                "autocorrelation": answer.autocorrelation,
                "anchor": _quantity(answer.anchor, answer.unit),
                "runs": answer.runs,
                "reason": answer.reason,
            }
        case Acknowledgement():
            return {
                "test": answer.test,
                "metric": answer.metric,
                "ticket": answer.ticket,
                "until": answer.until.isoformat(),
                "change": _percent(answer.change),
            }
        case Note():
            return {"platform": answer.platform, "at": answer.at.isoformat(), "text": answer.text}
        case Pause():
            return {"name": answer.name, "until": answer.until.isoformat(), "reason": answer.reason}


def _quantity(value: float, unit: str) -> str:
    return f"{value!r} {unit}".rstrip()


def _percent(fraction: float) -> str:
    """Exact: what is read back is the same float."""
    return f"{(Decimal(repr(fraction)) * 100).normalize():f} %"


def _written(key: str, text: str) -> str:
    if not text.isprintable():
        raise RefusedError(f"{key}: {text!r} has a character that cannot be printed (write it without)")
    if _PLAIN.fullmatch(text) and isinstance(yaml_lines.scalar(text), str):
        return text
    return json.dumps(text, ensure_ascii=False)


def _written_list(key: str, texts: tuple[str, ...]) -> str:
    return f"[{', '.join(json.dumps(text, ensure_ascii=False) for text in texts if _written(key, text))}]"


def read(path: Path) -> AnswerFile:
    """Read and check one file. Raises nothing: see `problems`."""
    document = yaml_lines.read(path)
    if document.value is None:
        return AnswerFile(path, None, problems=document.problems)
    keys = _Keys(document, document.value)
    digest = keys.text(HASH)
    after = keys.texts("after")
    answer = _answer(keys)
    keys.refuse_others()
    if digest and digest != _computed_hash(path):
        shown = log_command(path.parent, path.name)
        undo = "undo the change" if shown is None else f"`{shown}` shows the change: undo it"
        document.complain(
            (HASH,),
            "the file was changed by hand after this answer was given, so the answer does not count "
            f"({undo}, or delete the file and answer again)",
        )
    if document.problems:
        answer = None
    return AnswerFile(path, answer, digest, after, document.lines.at(("after",)), document.problems)


def _computed_hash(path: Path) -> str:
    """The hash that the file should have; empty if its last line is not the one with the hash."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):  # it changed since it was read
        return ""
    above, newline, last_line = text.rstrip().rpartition("\n")
    return hash_of(above + newline) if last_line.startswith(f"{HASH}:") else ""


def _answer(keys: _Keys) -> Answer | None:
    kind = keys.text("answer")
    author = Author(keys.text("by"), keys.moment("written"))
    match kind:
        case "accept":
            level, unit = keys.quantity("level")
            anchor, anchor_unit = keys.quantity("anchor")
            if anchor_unit != unit:
                keys.complain("anchor", f"its unit is {anchor_unit!r}, that of the level is {unit!r}")
            return Acceptance(
                test=keys.text("test"),
                metric=keys.text("metric"),
                unit=unit,
                better=keys.direction("better"),
                comparability=keys.text("comparability", may_be_empty=True),
                since=keys.date("since"),
                level=level,
                error=keys.fraction("error"),
                scale=keys.fraction("scale"),
                runs=keys.texts("runs"),
                anchor=anchor,
                reason=keys.text("reason"),
                author=author,
                autocorrelation=keys.number("autocorrelation"),
            )
        case "ack":
            return Acknowledgement(
                test=keys.text("test"),
                metric=keys.text("metric"),
                ticket=keys.text("ticket"),
                until=keys.date("until"),
                change=keys.fraction("change"),
                author=author,
            )
        case "note":
            return Note(keys.text("platform"), keys.date("at"), keys.text("text"), author)
        case "pause":
            return Pause(keys.text("name"), keys.date("until"), keys.text("reason"), author)
    if kind:
        keys.complain("answer", f"{kind!r} is none of accept, ack, note and pause")
    return None


@dataclass
class _Keys:
    """The keys of one file. One that is missing or wrong becomes a problem of the document, and a value of its type."""

    document: yaml_lines.Document
    values: dict[str, object]
    asked: set[str] = field(default_factory=set)

    def complain(self, key: str, what: str) -> None:
        self.document.complain((key,), what)

    def text(self, key: str, *, may_be_empty: bool = False) -> str:
        self.asked.add(key)
        value = self.values.get(key)
        if key not in self.values:
            self.complain(key, "is missing")
        elif isinstance(value, yaml_lines.Int | yaml_lines.Float):
            return value.text
        elif not isinstance(value, str):
            self.complain(key, "is no text")
        elif not value and not may_be_empty:
            self.complain(key, "is empty")
        else:
            return value
        return ""

    def texts(self, key: str) -> tuple[str, ...]:
        self.asked.add(key)
        value = self.values.get(key)
        if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
            return tuple(value)
        self.complain(key, 'is no list of texts, as in ["a", "b"]')
        return ()

    def direction(self, key: str) -> Literal["higher", "lower"]:
        text = self.text(key)
        if text == "lower":
            return "lower"
        if text and text != "higher":
            self.complain(key, f"{text!r} is neither higher nor lower")
        return "higher"

    def date(self, key: str) -> datetime.date:
        text = self.text(key)
        try:
            return datetime.date.fromisoformat(text)
        except ValueError:
            if text:
                self.complain(key, f"{text!r} is no date, as in 2026-11-17")
            return datetime.date.min

    def moment(self, key: str) -> datetime.datetime:
        text = self.text(key)
        try:
            moment = datetime.datetime.fromisoformat(text)
            if moment.tzinfo is not None:
                return moment
        except ValueError:
            pass
        if text:
            self.complain(key, f"{text!r} is no time with its zone, as in 2026-11-17T08:30:00+00:00")
        return datetime.datetime.min.replace(tzinfo=datetime.UTC)

    def quantity(self, key: str) -> tuple[float, str]:
        """A number that is not zero, and its unit."""
        text = self.text(key)
        number, _, unit = text.partition(" ")
        value = float(_decimal(number))
        if text and (value == 0 or not math.isfinite(value)):
            self.complain(key, f"{text!r} is no number with its unit, as in 812.4 samples/s")
        return value, unit

    def number(self, key: str) -> float:
        text = self.text(key)
        value = float(_decimal(text))
        if text and not math.isfinite(value):
            self.complain(key, f"{text!r} is no number, as in 0.2")
        return value

    def fraction(self, key: str) -> float:
        """The fraction that stands there in percent."""
        text = self.text(key)
        number, _, unit = text.partition(" ")
        value = float(_decimal(number) / 100)
        if text and (unit != "%" or not math.isfinite(value)):
            self.complain(key, f"{text!r} is no number of percent, as in 0.6 %")
        return value

    def refuse_others(self) -> None:
        for key in self.values:
            if key not in self.asked:
                self.complain(key, "has no meaning here (remove it)")


def _decimal(text: str) -> Decimal:
    """NaN for what is no number."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("NaN")
