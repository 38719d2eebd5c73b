"""Declares an option of pytest in one place: the field of a dataclass that holds its value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest

_KEY = "declaration"


@dataclass(frozen=True)
class Declaration:
    """How an option stands on the command line, and what its value becomes.

    Attributes:
        read: makes the value of the field; gets None where nothing was typed. Raises ValueError with a sentence.
        is_kept: it decides which jobs tests make, so a resumed run keeps the value with which it began.
        in_site: site.yaml may set it, under `options:`.
        keywords: of argparse.
    """

    flag: str
    read: Callable[[Any], object]
    is_kept: bool
    in_site: bool
    keywords: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of its value in pytest's options, and in site.yaml."""
        return str(self.keywords.get("dest") or self.flag.removeprefix("--").replace("-", "_"))

    @property
    def is_flag(self) -> bool:
        """Whether it takes no value."""
        return self.keywords.get("action") == "store_true"


def option(
    flag: str,
    help_text: str,
    *,
    read: Callable[[Any], object] = lambda typed: typed,
    kept: bool = False,
    in_site: bool = False,
    **keywords: Any,
) -> Any:
    """Declare an option, as the default of the field that gets its value. `keywords` are argparse's."""
    return field(metadata={_KEY: Declaration(flag, read, kept, in_site, {"help": help_text, **keywords})})


def declarations(holder: type) -> Iterator[tuple[str, Declaration]]:
    """The options that a dataclass declares, each with the name of its field."""
    for its_field in fields(holder):
        if _KEY in its_field.metadata:
            yield its_field.name, its_field.metadata[_KEY]


def add(group: pytest.OptionGroup, holder: type) -> None:
    """Give pytest the options that a dataclass declares."""
    for _, declaration in declarations(holder):
        group.addoption(declaration.flag, **declaration.keywords)


def values(config: pytest.Config, holder: type, site_options: Mapping[str, object], site_yaml: Path) -> dict[str, Any]:
    """The values of a dataclass's options: as typed (or in addopts), else those of site.yaml. Raises UsageError."""
    found = {}
    for name, declaration in declarations(holder):
        value = config.getoption(declaration.name)
        if value is None and declaration.in_site and declaration.name in site_options:
            value = str(site_options[declaration.name])
            choices = declaration.keywords.get("choices", (value,))
            if value not in choices:
                raise pytest.UsageError(
                    f"{site_yaml}: options: {declaration.name}: {value!r} is none of {', '.join(choices)}"
                )
        try:
            found[name] = declaration.read(value)
        except ValueError as error:
            raise pytest.UsageError(f"{declaration.flag}: {error}") from None
    return found
