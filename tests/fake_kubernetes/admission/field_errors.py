"""The API server's messages about refused fields, and its syntax of names and labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.fake_kubernetes.store.trees import Tree

Cause = tuple[str, str, str]
LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"
SERVICE = "[a-z]([-a-z0-9]*[a-z0-9])?"
VALUE = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
KEY = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
IS_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an "
    f"alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
)
IS_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"
)
IS_SERVICE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and "
    f"end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '{SERVICE}')"
)
IS_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end "
    f"with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{VALUE}')"
)
IS_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{KEY}')"
)


def required(field: str, why: str = "") -> Cause:
    return field, "FieldValueRequired", f"Required value: {why}" if why else "Required value"


def wrong(field: str, value: Any, why: str) -> Cause:
    shown = f'"{value}"' if isinstance(value, str) else value
    return field, "FieldValueInvalid", f"Invalid value: {shown}: {why}"


def unsupported(field: str, value: Any, *values: str) -> Cause:
    supported = ", ".join(f'"{one}"' for one in values)
    return field, "FieldValueNotSupported", f'Unsupported value: "{value}": supported values: {supported}'


def labels(pairs: Tree, field: str) -> Iterator[Cause]:
    for key, value in pairs.items():
        yield from label_key(key, field)
        if len(value) > 63:
            yield wrong(field, value, "must be no more than 63 bytes")
        if not re.fullmatch(VALUE, value):
            yield wrong(field, value, IS_VALUE)


def label_key(key: str, field: str) -> Iterator[Cause]:
    prefix, slash, name = key.rpartition("/")
    if slash and not re.fullmatch(SUBDOMAIN, prefix):
        yield wrong(field, key, f"prefix part {IS_SUBDOMAIN}")
    if len(name) > 63:
        yield wrong(field, key, "name part must be no more than 63 bytes")
    if not re.fullmatch(KEY, name):
        yield wrong(field, key, IS_KEY)
