"""What a command line names: the platforms and tests of -m, of the ids, of --platform and of --resume."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import pytest

from harness.options import Options
from platforms.config.schema import Platform

WANTED = pytest.StashKey[frozenset[str]]()  # the tests that --resume goes on with


# --- expressions of -m -----------------------------------------------------------------------------------------------


@cache
def _parse(expression: str) -> ast.expr | None:
    try:
        return ast.parse(expression, mode="eval").body
    except SyntaxError:
        return None  # pytest itself says what is wrong with it


def names_in(expression: str) -> set[str]:
    """The mark names of an -m expression."""
    tree = _parse(expression)
    if tree is None:
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}  # of a call, too: `mark(keyword=1)`


def matches(expression: str, marks: Iterable[str]) -> bool:
    """Whether an -m expression is true of these marks, as pytest reads it (keywords of a mark are not looked at).

    pytest's own evaluator is not public, and its matchers have changed with its versions.
    """
    marks = frozenset(marks)

    def value(node: ast.expr) -> bool:
        if isinstance(node, ast.BoolOp):
            values = [value(operand) for operand in node.values]
            return all(values) if isinstance(node.op, ast.And) else any(values)
        if isinstance(node, ast.UnaryOp):
            return not value(node.operand)
        if isinstance(node, ast.Call):
            return value(node.func)
        return isinstance(node, ast.Name) and node.id in marks

    tree = _parse(expression)
    return tree is not None and value(tree)


def check_expression(expression: str, known: Iterable[str], remarks: Sequence[str] = ()) -> None:
    """Raise UsageError for a mark that does not exist: a mistyped -m must not select nothing and pass."""
    known = sorted(known)
    for name in sorted(names_in(expression)):
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            first = f"-m {expression!r}: there is no mark {name!r}{hint} (`pytest --markers` lists them)"
            raise pytest.UsageError("\n".join([first, *remarks]))


# --- what is named ---------------------------------------------------------------------------------------------------


def expression_of(config: pytest.Config) -> str:
    """What stands behind -m; "" if nothing does."""
    return config.getoption("markexpr") or ""


def named_by_id(config: pytest.Config) -> set[tuple[Path, str]]:
    """The file and test of each argument that is the id of a job test."""
    named = set()
    for argument in config.args:
        if "[" in argument:
            file, _, test = argument.partition("::")
            named.add((Path(file), test))
    return named


def is_named(platform: Platform, options: Options, config: pytest.Config) -> bool:
    """Whether somebody has named this platform: by --platform, -m, the id of a test, or --resume."""
    if options.platforms:
        return platform.name in options.platforms
    expression = expression_of(config)
    if platform.name in names_in(expression) or is_named_by_marks(expression, platform):
        return True
    return _is_in_ids(platform.name, config)


def is_named_by_marks(expression: str, platform: Platform) -> bool:
    """Whether -m is true with the marks of a platform, and false without them: of a test that has none of the other
    marks that stand there, one of them as `nightly` in `a100 and nightly`, or all, or all but one."""
    own = frozenset(platform.all_marks)
    others = frozenset(names_in(expression)) - own
    tests = [frozenset[str](), others, *({name} for name in others), *(others - {name} for name in others)]
    return any(matches(expression, own | marks) and not matches(expression, marks) for marks in tests)


def has_name_of(name: str, config: pytest.Config) -> bool:
    """Whether -m, the id of a test or --resume has the name of a platform; `not NAME` leaves it out."""
    expression = expression_of(config)
    names = names_in(expression)
    is_wanted = any(matches(expression, marks) for marks in ([name], names)) and not matches(expression, ())
    return (name in names and is_wanted) or _is_in_ids(name, config)


def _is_in_ids(name: str, config: pytest.Config) -> bool:
    """Whether an id that is typed, or a test that --resume goes on with, is of this platform."""
    return any(f"[{name}-" in test for test in (*config.args, *config.stash.get(WANTED, frozenset())))
