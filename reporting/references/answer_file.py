"""One answer is one small YAML file: how it is written, read and checked. docs/answers.md shows the files."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from platforms.config import yaml_lines
from platforms.job import RefusedError
from reporting.references.answers import Acceptance, Acknowledgement, Author, Note, Pause

Answer = Acceptance | Acknowledgement | Note | Pause

COMMENT = "# Written by `python -m reporting`, explained in docs/answers.md."
_PLAIN = re.compile(r"[A-Za-z0-9][\w./%+-]*( [\w./%(,;+-]+)*", re.ASCII)  # text that YAML reads as it is written


@dataclass(frozen=True)
class AnswerFile:
    """A file that was read.

    Attributes:
        answer: None when the file cannot be read.
        problems: `file:line: key: what`.
    """

    answer: Answer | None
    problems: Sequence[str] = ()


@dataclass(frozen=True)
class Form:
    """How a value stands in a file.

    Attributes:
        read: makes a value of what stands there. Raises ValueError with what is wrong, as in `is no text`.
        write: makes what stands there of a value: a text, a number, or a tuple of texts.
    """

    read: Callable[[object], Any]
    write: Callable[[Any], str | float | tuple[str, ...]] = str


def _any_text(found: object) -> str:
    if isinstance(found, yaml_lines.Int | yaml_lines.Float):
        return found.text
    if not isinstance(found, str):
        raise ValueError("is no text")
    return found


def _text(found: object) -> str:
    text = _any_text(found)
    if not text:
        raise ValueError("is empty")
    return text


def _texts(found: object) -> tuple[str, ...]:
    if isinstance(found, list) and all(isinstance(entry, str) for entry in found):
        return tuple(found)
    raise ValueError('is no list of texts, as in ["a", "b"]')


def _direction(found: object) -> str:
    text = _text(found)
    if text not in ("higher", "lower"):
        raise ValueError(f"{text!r} is neither higher nor lower")
    return text


def _date(found: object) -> datetime.date:
    text = _text(found)
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no date, as in 2026-11-17") from None


def _moment(found: object) -> datetime.datetime:
    text = _text(found)
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        moment = datetime.datetime.min
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} is no time with its zone, as in 2026-11-17T08:30:00+00:00")
    return moment


def _written_moment(moment: datetime.datetime) -> str:
    return moment.isoformat(timespec="seconds")


def _decimal(text: str) -> Decimal:
    """NaN for what is no number. Unlike a float it is exact, so that what is read back is what was written."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("NaN")


def _number(found: object) -> float:
    text = _text(found)
    value = float(_decimal(text))
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is no number, as in 0.2")
    return value


def _fraction(found: object) -> float:
    text = _text(found)
    number, _, unit = text.partition(" ")
    value = float(_decimal(number) / 100)
    if unit != "%" or not math.isfinite(value):
        raise ValueError(f"{text!r} is no number of percent, as in 0.6 %")
    return value


def _written_percent(fraction: float) -> str:
    return f"{(_decimal(repr(fraction)) * 100).normalize():f} %"


def _quantity(found: object) -> tuple[float, str]:
    text = _text(found)
    number, _, unit = text.partition(" ")
    value = float(_decimal(number))
    if value == 0 or not math.isfinite(value):
        raise ValueError(f"{text!r} is no number with its unit, as in 812.4 samples/s")
    return value, unit


def _written_quantity(quantity: tuple[float, str]) -> str:
    value, unit = quantity
    return f"{value!r} {unit}".rstrip()


TEXT = Form(_text)
ANY_TEXT = Form(_any_text)  # it may be empty
TEXTS = Form(_texts, tuple)
DIRECTION = Form(_direction)
DATE = Form(_date)
MOMENT = Form(_moment, _written_moment)
NUMBER = Form(_number, float)
PERCENT = Form(_fraction, _written_percent)
QUANTITY = Form(_quantity, _written_quantity)

KINDS: Mapping[str, type[Answer]] = {"accept": Acceptance, "ack": Acknowledgement, "note": Note, "pause": Pause}
# The keys of each kind, in the order in which they are written. Those of an answer's author stand in every file.
AUTHOR: Mapping[str, Form] = {"by": TEXT, "written": MOMENT}
KEYS: Mapping[str, Mapping[str, Form]] = {
    "accept": {
        "test": TEXT,
        "metric": TEXT,
        "better": DIRECTION,
        "comparability": ANY_TEXT,
        "since": DATE,
        "level": QUANTITY,
        "error": PERCENT,
        "scale": PERCENT,
        "autocorrelation": NUMBER,
        "anchor": QUANTITY,
        "runs": TEXTS,
        "reason": TEXT,
    },
    "ack": {"test": TEXT, "metric": TEXT, "ticket": TEXT, "until": DATE, "change": PERCENT},
    "note": {"platform": TEXT, "at": DATE, "text": TEXT},
    "pause": {"name": TEXT, "until": DATE, "reason": TEXT},
}
NOT_READ = frozenset({"after", "hash"})  # once they made a chain of the files; git shows what was edited


def kind_of(answer: Answer) -> str:
    """The command that gives such an answer; the value of the file's first key."""
    return next(kind for kind, answers in KINDS.items() if isinstance(answer, answers))


def subject_of(answer: Answer) -> str:
    """What the answer is about: the id of a test, or a platform's name."""
    match answer:
        case Acceptance() | Acknowledgement():
            return answer.test
        case Note():
            return answer.platform
        case Pause():
            return answer.name


def text_of(answer: Answer) -> str:
    """The whole text of an answer's file.

    Raises:
        RefusedError: a value has a character that cannot be printed.
    """
    kind = kind_of(answer)
    values = {key: getattr(answer, key) for key in KEYS[kind]}
    if isinstance(answer, Acceptance):
        values["level"] = (answer.level, answer.unit)
        values["anchor"] = (answer.anchor, answer.unit)
    values["by"] = answer.author.by
    values["written"] = answer.author.at
    lines = [COMMENT, f"answer: {kind}"]
    for key, form in {**KEYS[kind], **AUTHOR}.items():
        lines.append(f"{key}: {_written(key, form.write(values[key]))}")
    return "\n".join([*lines, ""])


def _written(key: str, value: str | float | tuple[str, ...]) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(json.dumps(text, ensure_ascii=False) for text in value if _written(key, text))}]"
    if isinstance(value, float):
        return repr(value)
    if not value.isprintable():
        raise RefusedError(f"{key}: {value!r} has a character that cannot be printed (write it without)")
    if _PLAIN.fullmatch(value) and isinstance(yaml_lines.scalar(value), str):
        return value
    return json.dumps(value, ensure_ascii=False)


def read(path: Path) -> AnswerFile:
    """Read and check one file. Raises nothing: see `problems`."""
    document = yaml_lines.read(path)
    answer = None
    if document.value is not None:
        answer = _answer(document, document.value)
    return AnswerFile(answer, document.problems)


def _answer(document: yaml_lines.Document, found: Mapping[str, object]) -> Answer | None:
    """The answer of a document. What is wrong becomes a problem of the document, and there is no answer then."""
    kind = str(found.get("answer", ""))
    if kind not in KINDS:
        document.complain(("answer",), f"{kind!r} is none of accept, ack, note and pause")
        return None
    forms = {**KEYS[kind], **AUTHOR}
    values: dict[str, Any] = {}
    for key, form in forms.items():
        if key not in found:
            document.complain((key,), "is missing")
            continue
        try:
            values[key] = form.read(found[key])
        except ValueError as error:
            document.complain((key,), str(error))
    for key in found.keys() - forms.keys() - NOT_READ - {"answer"}:
        document.complain((key,), "has no meaning here (remove it)")
    if document.problems:
        return None
    author = Author(values.pop("by"), values.pop("written"))
    if kind == "accept":
        values["level"], values["unit"] = values["level"]
        values["anchor"], anchor_unit = values["anchor"]
        if anchor_unit != values["unit"]:
            document.complain(("anchor",), f"its unit is {anchor_unit!r}, that of the level is {values['unit']!r}")
            return None
    return KINDS[kind](**values, author=author)
