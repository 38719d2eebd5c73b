"""Turns one YAML file into one pydantic model, and every mistake in it into a sentence with line and key."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from platforms.config.scheduler_keys import SchedulerKeys
from platforms.config.yaml_lines import Document, Float, Int, Loc
from platforms.job import names_a_secret

Model = TypeVar("Model", bound=BaseModel)

_SITE_REFERENCE = re.compile(r"\$\{site\.([^}:]*)(?::-([^}]*))?\}")
_HOLE = re.compile(r"\$\{(?P<name>[^${}]*)(?P<closed>\})?")
_UNSET = re.compile(r"<([^<>]*): set in site\.yaml>")
_SITES_VALUE = "the value of ${site.…}"
_SITES_VALUE_MISFIT = f"{_SITES_VALUE} does not fit here"
_NEEDED: Mapping[str, str] = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "tuple_type": "a list, as in [a, b]",
    "dict_type": "lines of `key: value`",
    "mapping_type": "lines of `key: value`",
    "model_type": "lines of `key: value`",
}


def substitution(
    site_values: Mapping[str, str], environ: Mapping[str, str], missing: list[str]
) -> Callable[[str], str]:
    """Return a function that fills in every `${site.key}` of a text.

    The value is HPC_ML_BENCH_KEY of the environment, else the site's, else the default in `${site.key:-default}`. A key
    without a value becomes `<key: set in site.yaml>`, and is added to `missing`.
    """

    def value(match: re.Match[str]) -> str:
        key = match[1]
        site_value = environ.get(f"HPC_ML_BENCH_{key.upper()}", site_values.get(key, match[2]))
        if site_value is not None:
            return site_value
        if key not in missing:
            missing.append(key)
        return f"<{key}: set in site.yaml>"

    return lambda text: _SITE_REFERENCE.sub(value, text)


def build(
    document: Document, model: type[Model], defaults: Mapping[str, object] | None = None, **own: object
) -> Model | None:
    """Build the model of a document's mapping. Returns None, with the reasons in `document.problems`, if that fails.

    `defaults` are values of keys that the file leaves out; `own` are fields that a file cannot set.
    """
    if document.value is None:
        return None
    for loc, value in _leaves(document.value, ()):
        if value is None:
            document.complain(loc, "nothing is written here (write a value, or remove the line)")
        elif _is_secret(document, loc, value):
            hint = "write ${site.key} and export HPC_ML_BENCH_KEY"
            document.complain(loc, f"looks like a secret, and secrets never reach YAML ({hint})")
    data = {key: _without_nulls(value) for key, value in document.value.items() if value is not None}
    for key in own.keys() & data.keys():
        document.complain((key,), "cannot be set (a platform has the name of its file)")
    try:
        return model.model_validate({**(defaults or {}), **data, **own})
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            _explain(document, model, problem, own.keys())
        return None


def _explain(document: Document, model: type[BaseModel], error: Mapping[str, Any], own: Collection[str]) -> None:
    loc = tuple(part for part in error["loc"] if part != "[key]")
    if loc[:1] == ("name",) and "name" in own:
        document.complain((), f"the name of the file is the platform's name: {sentence(error, ())} (rename the file)")
    elif loc not in document.substituted:
        document.complain(loc, sentence(error, _known_keys(model, loc, own)))
    elif unset := _UNSET.search(str(error["input"])):
        document.complain(loc, f"${{site.{unset[1]}}} is not set (write it under `values:` in site.yaml)")
    elif error["type"] == "value_error":  # whose text quotes the value, and that is the site's
        document.complain(loc, _SITES_VALUE_MISFIT)
    else:
        document.complain(loc, sentence({**error, "input": _SITES_VALUE}, ()))


def check_file(document: Document, earlier: Document | None) -> None:
    """Complain if the file replaces another one without saying so, or says so and there is none."""
    keys = document.value
    if keys is None:
        return
    replaces = keys.get("replaces") is True
    if earlier and not replaces:
        hint = "rename it, or write `replaces: true` to use this one instead"
        document.complain((), f"{earlier.path} is a platform of the same name ({hint})")
    if replaces and not earlier:
        document.complain(("replaces",), f"there is no earlier {document.path.name} to replace (remove the line)")


def scheduler_of(document: Document, schedulers: Mapping[str, SchedulerKeys]) -> SchedulerKeys | None:
    """Return the keys of the scheduler that a file names. Returns None and complains if it does not exist."""
    name = (document.value or {}).get("scheduler", "local")
    if not isinstance(name, str):
        return None  # the model says that it is no name
    if name not in schedulers:
        document.complain(("scheduler",), f"there is no scheduler {name!r} {nearest(name, schedulers)}")
        return None
    return schedulers[name]


def check_scheduler_keys(document: Document, scheduler: SchedulerKeys, others: Collection[str]) -> None:
    """Complain of keys that the file's scheduler refuses or misses; `others` are the names of the other schedulers,
    whose own keys mean nothing here."""
    keys = document.value or {}
    for key, why in scheduler.refused.items():
        if key in keys:
            document.complain((key,), why)
    for key in others:
        if key in keys and key not in scheduler.refused:
            document.complain((key,), f"means nothing to scheduler {keys.get('scheduler')} (remove it)")
    if not scheduler.this_machine:
        _check_remote(document, keys)
    for key, what_to_write in scheduler.needed.items():
        if key not in keys:
            document.complain((key,), f"is missing ({what_to_write})")
    for key, mistake in scheduler.check(keys):
        document.complain((key,), mistake)


def check_stacks(document: Document, scheduler: SchedulerKeys) -> None:
    """Complain of keys of a stack that the file's scheduler refuses, and of an image that has no place."""
    keys = document.value or {}
    stacks = keys.get("stacks")
    for name, stack in stacks.items() if isinstance(stacks, Mapping) else ():
        for key in stack if isinstance(stack, Mapping) else ():
            if key in scheduler.refused:
                document.complain(("stacks", name, key), scheduler.refused[key])
            elif key == "image":
                _check_image(document, ("stacks", name, key), scheduler)


def _check_image(document: Document, loc: Loc, scheduler: SchedulerKeys) -> None:
    below = scheduler.image_below
    if below in scheduler.refused:
        document.complain(loc, scheduler.refused[below])
    elif below == "container" and "container" not in (document.value or {}):
        document.complain(loc, "there is no container whose image it replaces (write `container:`, or remove the line)")


def _check_remote(document: Document, keys: Mapping[str, object]) -> None:
    if keys.get("device", "auto") == "auto":
        document.complain(("device",), "auto looks at this machine only (write cpu, gpu, ipu or csx)")
    if "layouts" not in keys:
        document.complain(("layouts",), "is missing (write layouts: {default: [1x4]})")
    if keys.get("transport", "local") != "local" and "host" not in keys:
        document.complain(("host",), "is missing (write the login node as ssh knows it)")
    for loc, value in _leaves(keys, ()):
        if value == "auto" and "layouts" in loc:
            document.complain(loc, "auto looks at this machine only (write nodes x devices per node, as in 1x4)")


def check_benchmarks(document: Document, benchmarks: Collection[str] | None) -> None:
    """Complain of keys that should be a benchmark's name and are not."""
    if benchmarks is None or document.value is None:
        return
    for key in ("benchmarks", "unsupported"):
        named = document.value.get(key)
        for name in named if isinstance(named, Mapping) else ():
            if name not in benchmarks:
                document.complain((key, name), f"there is no benchmark {name!r} {nearest(name, benchmarks)}")


def check_holes(document: Document) -> None:
    """Complain of a `${…}` that is not filled in. In `setup:` it is the shell's, in `env:` perhaps the program's."""
    for loc, value in _leaves(document.value or {}, ()):
        key = loc[2] if loc[0] == "stacks" and len(loc) > 2 else loc[0]
        hole = _HOLE.search(value) if isinstance(value, str) and key not in ("setup", "env") else None
        if hole is None or loc in document.substituted:
            continue
        if hole["closed"]:
            name = re.sub(r"\W", "_", hole["name"].rpartition(".")[2]).lower() or "key"
            document.complain(loc, f"{hole[0]} is never filled in (write ${{site.{name}}}, a value of site.yaml)")
        else:
            document.complain(loc, f"{hole[0]!r} has no closing brace (write ${{site.key}})")


def check_marks(document: Document, documents: Mapping[str, Document]) -> None:
    """Complain of a mark that is another platform's name, which would select that platform too.

    If a site's file has taken the name of a shipped file's mark, the site's file must be renamed.
    """
    marks = (document.value or {}).get("marks")
    names = list(documents)
    for index, mark in enumerate(marks if isinstance(marks, list) else ()):
        other = documents.get(str(mark))
        if other is None or other.path.stem == document.path.stem:
            continue
        later = names.index(other.path.stem) > names.index(document.path.stem)
        if later and other.path.parent != document.path.parent:
            name = f"campus_{mark}"
            hint = f"rename this file, as {name}.yaml, and give it the mark"
            other.complain((), f"its name is a mark of {document.path} ({hint})")
        else:
            document.complain(("marks", index), f"{mark!r} is the platform of {other.path} (choose another mark)")


def nearest(word: str, known: Collection[str]) -> str:
    """Return `(did you mean 'layouts'?)`, or the list of known words."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"(did you mean {close[0]!r}?)" if close else f"(known: {', '.join(sorted(known))})"


def sentence(error: Mapping[str, Any], known: Collection[str]) -> str:
    """Return one pydantic error as a sentence; `known` are the keys that are allowed in place of an unknown one."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key {nearest(str(error['loc'][-1]), known)}"
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"])
        close = difflib.get_close_matches(str(value), choices, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        return f"{_quoted(value)} is not one of {', '.join(choices)}{hint}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "greater_than_equal":
        return f"{_quoted(value)} is too small (at least {context['ge']:g})"
    if kind == "missing":
        return "is missing"
    if kind == "greater_than":
        return f"{_quoted(value)} is too small (more than {context['gt']:g})"
    if kind in _NEEDED:
        return f"needs {_NEEDED[kind]}, not {_quoted(value)}"
    return str(error["msg"])


def _known_keys(model: type[BaseModel], loc: Loc, own: Collection[str]) -> list[str]:
    """Return the keys that a file may write beside the one at `loc`.

    They are the model's, or those of a model that one of its keys holds by itself, in a mapping or in a list.
    """
    for part in loc[:-1]:
        for name, field in model.model_fields.items():
            if part in (name, field.alias):
                model = next(_models_in(field.annotation), model)
                break
    hidden = own if len(loc) == 1 else ()
    return [field.alias or name for name, field in model.model_fields.items() if name not in hidden]


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the models in a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _quoted(value: object) -> str:
    """Return a value as it was written, short enough for a sentence."""
    if value is _SITES_VALUE:
        return _SITES_VALUE
    if isinstance(value, Mapping | list):
        return "a list" if isinstance(value, list) else "lines of `key: value`"
    if isinstance(value, bool):
        return str(value).lower()
    text = value.text if isinstance(value, Int | Float) else str(value)
    return repr(text if len(text) <= 60 else text[:59] + "…")


def _leaves(value: object, loc: Loc) -> Iterator[tuple[Loc, object]]:
    """Yield every scalar of a document with the keys that lead to it."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield from _leaves(child, (*loc, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _leaves(child, (*loc, index))
    else:
        yield loc, value


def _is_secret(document: Document, loc: Loc, value: object) -> bool:
    if loc[0] == "policy" or "image_pull_secrets" in loc:  # rules about secrets, and names of those that a cluster has
        return False
    key = next((part for part in reversed(loc) if isinstance(part, str)), "")
    written = document.substituted.get(loc, "")
    if isinstance(value, bool) or not str(value) or (written and ":-" not in written):
        return False
    return names_a_secret(key)


def _without_nulls(value: object) -> object:
    """Return a copy without nulls, which are complained of elsewhere."""
    if isinstance(value, dict):
        return {key: _without_nulls(child) for key, child in value.items() if child is not None}
    if isinstance(value, list):
        return [_without_nulls(child) for child in value if child is not None]
    return value
