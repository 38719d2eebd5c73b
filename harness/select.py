"""What is selected: the cases of a test on every platform, their ids, and which of them were named and may run."""

from __future__ import annotations

import ast
import datetime
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from harness import manifests
from harness.options import Options
from platforms import checkout
from platforms.config.loading import nearest
from platforms.config.schema import Platform
from platforms.config.values import no_mpi_launcher, seconds_of
from platforms.job import Layout

SETTINGS = ("configuration", "size", "mode", "variant", "dtype", "cache")
LAUNCHERS = ("platform", "torchrun", "srun", "poprun", "none")  # what may start a test's own command
HOME = "local"  # the one platform that runs without being enabled and named
WANTED = pytest.StashKey[frozenset[str]]()  # the tests that --resume goes on with


@dataclass(frozen=True)
class Case:
    """One test on one platform in one layout. Its id is the key of years of history: see `case_id`."""

    platform: Platform
    layout: Layout
    settings: Mapping[str, str]
    unsupported: str | None = None

    @property
    def id(self) -> str:
        return case_id(self.platform, self.layout, self.settings)


def case_id(platform: Platform, layout: Layout, settings: Mapping[str, str]) -> str:
    """`eidf_a100-1x4gpu-tuned`, then, only where they differ from the platform's default and in this order, size, mode,
    variant, dtype and cache. The test's own parameters follow. Frozen: changing it loses the history of every machine.
    """
    parts = [platform.name, str(layout)]
    if "configuration" in settings:
        parts.append(settings["configuration"])
    defaults = {"size": platform.size, "mode": platform.mode, "dtype": platform.dtype, "cache": "as-is"}
    parts += [settings[name] for name in SETTINGS[1:] if name in settings and settings[name] != defaults.get(name)]
    return "-".join(parts)


def workload(definition: pytest.Item) -> Mapping[str, object] | None:
    """The keywords of the test's workload mark. Raises UsageError when it is not used as documented."""
    mark = definition.get_closest_marker("workload")
    if mark is None:
        return None
    known = {"benchmark", "command", "launcher", "manifest", "presets", "arguments", "time_limit", *manifests.PLACE}
    where = f"{definition.nodeid}: @pytest.mark.workload"
    if mark.args or (unknown := sorted(set(mark.kwargs) - known)):
        what = f"{unknown[0]!r} is no option" if not mark.args else "takes keywords only"
        raise pytest.UsageError(f"{where}: {what}; known: {', '.join(sorted(known))}")
    asked = {"benchmark", "command"} & mark.kwargs.keys()
    if len(asked) > 1 or not (asked or "manifest" in mark.kwargs):
        choice = "benchmark='resnet50' or command=['my_program', …]"
        raise pytest.UsageError(f"{where}: needs either {choice}, or, for Kubernetes, a manifest alone")
    benchmark = mark.kwargs.get("benchmark")
    if benchmark is not None and benchmark not in checkout.benchmarks():
        hint = nearest(str(benchmark), checkout.benchmarks())
        raise pytest.UsageError(f"{where}: there is no benchmark {benchmark!r} {hint}")
    manifests.check(definition, mark.kwargs, where)
    try:
        seconds_of(str(mark.kwargs.get("time_limit", "1h")))
    except ValueError as error:
        raise pytest.UsageError(f"{where}: time_limit: {error}") from None
    command = mark.kwargs.get("command", [])
    words = isinstance(command, list | tuple) and all(isinstance(word, str) for word in command)
    if not words or ("command" in mark.kwargs and not command):
        raise pytest.UsageError(f"{where}: command is a list of words, as in ['python3', '{{root}}/my.py']")
    if "launcher" in mark.kwargs:
        _check_launcher(mark.kwargs, where)
    return mark.kwargs


def _check_launcher(mark: Mapping[str, object], where: str) -> None:
    """Raise UsageError for a launcher that does not exist, and for one that starts nothing of the test's own."""
    launcher = mark["launcher"]
    try:
        no_mpi_launcher(launcher)
    except ValueError as error:
        raise pytest.UsageError(f"{where}: launcher: {error}") from None
    if launcher not in LAUNCHERS:
        raise pytest.UsageError(f"{where}: launcher: {launcher!r} is not one of {', '.join(LAUNCHERS)}")
    if "command" not in mark:
        raise pytest.UsageError(
            f"{where}: launcher is for command=[…]; how a benchmark starts stands in the platform's file, `launcher:`"
        )


def suits(platform: Platform, options: Options, mark: Mapping[str, object]) -> bool:
    """Whether a test has cases on a platform."""
    return options.layouts in platform.layouts and manifests.suits(mark, platform)


def cases(general: Platform, options: Options, mark: Mapping[str, object], own: set[str]) -> Iterator[Case]:
    """Every case of one test on a platform that suits it. `own` names the test's own parameters, which take the place
    of options of that name."""
    benchmark = mark.get("benchmark")
    presets = mark.get("presets") or {}
    assert isinstance(presets, Mapping)
    asked = {**options.settings, **presets.get(options.preset, {})}
    platform = general.for_benchmark(str(benchmark)) if benchmark else general
    defaults = {"size": platform.size, "mode": platform.mode}
    base = {k: v for k, v in {**defaults, **asked}.items() if k not in own and k != "configuration"}
    configurations = [asked["configuration"]] if "configuration" in asked else platform.configurations
    if benchmark is None:  # a program of the user's own knows nothing of our settings
        several: list[dict[str, str]] = [{}]
    elif "configuration" in own:
        several = [base]
    else:
        several = [{"configuration": name, **base} for name in configurations]
    for layout in platform.layout_list(str(benchmark), options.layouts):
        yield from (Case(platform, layout, settings, _unsupported(platform, benchmark)) for settings in several)


def _unsupported(platform: Platform, benchmark: object) -> str | None:
    """Why it is known not to run there, if it is."""
    return ended(platform) or platform.unsupported.get(str(benchmark))


def ended(platform: Platform) -> str | None:
    """That it is no longer there, if it is not."""
    return platform.ended_by(datetime.date.today())


def own_parameters(definition: pytest.Item) -> set[str]:
    """Names that the test parametrizes itself."""
    names: set[str] = set()
    for mark in definition.iter_markers("parametrize"):
        spelled = mark.args[0] if mark.args else mark.kwargs["argnames"]
        names.update([n.strip() for n in spelled.split(",")] if isinstance(spelled, str) else spelled)
    return names


# --- what -m says ----------------------------------------------------------------------------------------------------


@cache
def _parse(expression: str) -> ast.expr | None:
    try:
        return ast.parse(expression, mode="eval").body
    except SyntaxError:
        return None  # pytest itself says what is wrong with it


def names_in(expression: str) -> set[str]:
    """The mark names of an -m expression."""
    tree = _parse(expression)
    called = (
        {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        if tree
        else set()
    )
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | called if tree else set()


def matches(expression: str, marks: Iterable[str]) -> bool:
    """Whether an -m expression is true of these marks, as pytest reads it (keywords of a mark are not looked at)."""
    marks = frozenset(marks)

    def value(node: ast.expr) -> bool:
        if isinstance(node, ast.BoolOp):
            return (all if isinstance(node.op, ast.And) else any)(map(value, node.values))
        if isinstance(node, ast.UnaryOp):
            return not value(node.operand)
        if isinstance(node, ast.Call):
            return value(node.func)
        return isinstance(node, ast.Name) and node.id in marks

    tree = _parse(expression)
    return tree is not None and value(tree)


def check_expression(expression: str, known: Iterable[str]) -> None:
    """Raise UsageError for a mark that does not exist: a mistyped -m must not select nothing and pass."""
    known = sorted(known)
    for name in sorted(names_in(expression)):
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise pytest.UsageError(
                f"-m {expression!r}: there is no mark {name!r}{hint} (`pytest --markers` lists them)"
            )


# --- what may run ----------------------------------------------------------------------------------------------------


def _named_by_id(args: Sequence[str]) -> set[tuple[Path, str]]:
    """Files and tests."""
    parts = (arg.partition("::") for arg in args if "[" in arg)
    return {(Path(file), test) for file, _, test in parts}


def may_be_named(platform: Platform, options: Options, config: pytest.Config) -> bool:
    """Whether `arm` could choose a test of this platform. The others' tests are not made at all: a suite of 200 tests
    and twenty platforms would make 4,000 of them to drop all but 200."""
    if options.platforms:
        return platform.name in options.platforms
    expression = config.getoption("markexpr") or ""
    if platform.name == HOME or platform.name in names_in(expression):
        return True
    if matches(expression, platform.all_marks) and not matches(expression, ()):
        return True
    ids = (*config.args, *config.stash.get(WANTED, frozenset()))
    return any(f"[{platform.name}-" in test for test in ids)


def arm(
    items: Sequence[pytest.Item],
    case_of: Callable[[pytest.Item], Case],
    options: Options,
    enabled: Callable[[str], bool],
    config: pytest.Config,
) -> tuple[list[pytest.Item], list[str]]:
    """Split job tests into those that may run and the names of the platforms left out: nothing is spent by accident.

    A platform other than `local` runs only when it is enabled in site.yaml and named: by an -m expression that is true
    with its marks and false for a test without marks, by a node id, by --platform, or by --resume. Raises UsageError
    when what was named is not enabled.
    """
    expression = config.getoption("markexpr") or ""
    chosen: list[pytest.Item] = []
    left_out: dict[str, None] = {}
    refused: dict[str, bool] = {}
    by_id, resumed = _named_by_id(config.args), config.stash.get(WANTED, frozenset())
    for item in items:
        platform = case_of(item).platform
        direct = (
            platform.name in options.platforms
            or platform.name in names_in(expression)
            or (item.path, item.nodeid.partition("::")[2]) in by_id
            or item.nodeid in resumed
        )
        by_mark = matches(expression, platform.all_marks) and not matches(expression, ())
        if options.platforms and platform.name not in options.platforms:
            left_out[platform.name] = None
        elif platform.name == HOME or ((direct or by_mark) and (options.dry_run or enabled(platform.name))):
            chosen.append(item)
        else:
            left_out[platform.name] = None
            if (direct and (not expression or by_mark)) or by_mark:
                refused[platform.name] = refused.get(platform.name, False) or direct
    wanted = [name for name, direct in refused.items() if direct] or ([] if chosen else list(refused))
    if wanted:
        of_names = {case_of(item).platform.name: case_of(item).platform for item in items}
        gone = {name: why for name, platform in of_names.items() if (why := ended(platform)) is not None}
        raise pytest.UsageError(_not_enabled(wanted, options, gone))
    return chosen, sorted(left_out)


def _not_enabled(names: Sequence[str], options: Options, gone: Mapping[str, str]) -> str:
    """Of platforms that are named; `gone` says of those that have ended so, as enabling them runs nothing."""
    listed = ", ".join(names)
    site = checkout.site_option(options.site)
    verb = "is" if len(names) == 1 else "are"
    return (
        f"{listed} {verb} not enabled on this site, so nothing was submitted. To enable and run:\n"
        f"    python -m platforms enable {' '.join(names)}{site}\n"
        f"    pytest {' '.join('--platform ' + name for name in names)}{site}\n"
        f"(with --dry-run the jobs are shown without enabling anything)"
        + "".join(f"\n{name}: {gone[name]}: its tests are skipped" for name in names if name in gone)
    )
