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
WORKLOAD_KEYWORDS = frozenset(
    ("benchmark", "command", "launcher", "manifest", "presets", "arguments", "time_limit", *manifests.PLACE)
)
LAUNCHERS = ("platform", "torchrun", "srun", "poprun", "none")  # what may start a test's own command
HOME = "local"  # the one platform that runs without being enabled and named
WANTED = pytest.StashKey[frozenset[str]]()  # the tests that --resume goes on with


@dataclass(frozen=True)
class Case:
    """One test on one platform in one layout. Its id is the key of years of history: see `case_id`."""

    platform: Platform
    layout: Layout
    settings: Mapping[str, str]
    ended: str | None = None  # a sentence with the machine's last day; None: it is in service
    obstacle: str | None = None  # why the platform's file says that this cannot run there
    is_tried: bool = False  # whether it runs all the same, by --try-unsupported

    @property
    def why_skipped(self) -> str | None:
        """Why no job is made of it; None for a test that runs."""
        if self.ended is not None:
            return self.ended
        return None if self.is_tried else self.obstacle

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
    keywords = mark.kwargs
    where = f"{definition.nodeid}: @pytest.mark.workload"
    allowed = ", ".join(sorted(WORKLOAD_KEYWORDS))
    if mark.args:
        raise pytest.UsageError(f"{where}: takes keywords only; known: {allowed}")
    for name in sorted(keywords.keys() - WORKLOAD_KEYWORDS):
        raise pytest.UsageError(f"{where}: {name!r} is no option; known: {allowed}")
    programs = {"benchmark", "command"} & keywords.keys()
    if len(programs) > 1 or not (programs or "manifest" in keywords):
        choice = "benchmark='resnet50' or command=['my_program', …]"
        raise pytest.UsageError(f"{where}: needs either {choice}, or, for Kubernetes, a manifest alone")
    if "benchmark" in keywords:
        _check_benchmark(keywords["benchmark"], where)
    manifests.check(definition, keywords, where)
    try:
        seconds_of(str(keywords.get("time_limit", "1h")))
    except ValueError as error:
        raise pytest.UsageError(f"{where}: time_limit: {error}") from None
    if "command" in keywords:
        _check_command(keywords["command"], where)
    if "launcher" in keywords:
        _check_launcher(keywords, where)
    return keywords


def _check_benchmark(benchmark: object, where: str) -> None:
    if benchmark is not None and benchmark not in checkout.benchmarks():
        hint = nearest(str(benchmark), checkout.benchmarks())
        raise pytest.UsageError(f"{where}: there is no benchmark {benchmark!r} {hint}")


def _check_command(command: object, where: str) -> None:
    words = command if isinstance(command, list | tuple) else ()
    if not words or not all(isinstance(word, str) for word in words):
        raise pytest.UsageError(f"{where}: command is a list of words, as in ['python3', '{{root}}/my.py']")


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


def cases(
    general: Platform, options: Options, mark: Mapping[str, object], own: set[str], *, is_named: bool
) -> Iterator[Case]:
    """Every case of one test on a platform that suits it.

    Args:
        own: the test's own parameters, which take the place of options of that name.
        is_named: somebody has named the platform. On another one --try-unsupported tries nothing.
    """
    benchmark = mark.get("benchmark")
    presets = mark.get("presets") or {}
    assert isinstance(presets, Mapping)
    asked = {**options.settings, **presets.get(options.preset, {})}
    platform = general.for_benchmark(str(benchmark)) if benchmark else general
    own_keys = general.benchmarks.get(str(benchmark))
    if options.dtype_from_preset and own_keys is not None and "dtype" in own_keys.model_fields_set:
        asked["dtype"] = platform.dtype  # the platform's file knows what of this benchmark runs there
    if benchmark is None:
        variations: list[dict[str, str]] = [{}]  # a program of the user's own knows nothing of our settings
    else:
        variations = _settings(platform, asked, own)
    end = ended(platform)
    obstacle = platform.obstacle(str(benchmark)) if benchmark else None
    is_tried = obstacle is not None and end is None and options.try_unsupported and is_named
    for layout in platform.layout_list(str(benchmark), options.layouts):
        for settings in variations:
            yield Case(platform, layout, settings, end, obstacle, is_tried)


def _settings(platform: Platform, asked: Mapping[str, str], own: set[str]) -> list[dict[str, str]]:
    """The settings of each job of a benchmark in one layout: one for each configuration."""
    settings = {"size": platform.size, "mode": platform.mode, **asked}
    configuration = settings.pop("configuration", None)
    for name in own:
        settings.pop(name, None)
    if "configuration" in own:
        return [settings]
    configurations = platform.configurations if configuration is None else [configuration]
    return [{"configuration": name, **settings} for name in configurations]


def ended(platform: Platform) -> str | None:
    """A sentence on a platform that has been switched off; None while it exists."""
    return platform.ended_by(datetime.date.today())


def why_all_skipped(platform: Platform, options: Options) -> str | None:
    """A sentence on a platform on which no benchmark runs; None on any other."""
    end = ended(platform)
    if end is not None:
        return f"{platform.name}: {end}: its tests are skipped"
    if platform.cannot_run is not None and not options.try_unsupported:
        return f"{platform.name}: the suite's benchmarks cannot run there, so they are skipped: {platform.cannot_run}"
    return None


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
    if tree is None:
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}  # of a call, too: `mark(keyword=1)`


def matches(expression: str, marks: Iterable[str]) -> bool:
    """Whether an -m expression is true of these marks, as pytest reads it (keywords of a mark are not looked at)."""
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
            raise pytest.UsageError(
                "\n".join(
                    [f"-m {expression!r}: there is no mark {name!r}{hint} (`pytest --markers` lists them)", *remarks]
                )
            )


# --- what may run ----------------------------------------------------------------------------------------------------


def _named_by_id(args: Sequence[str]) -> set[tuple[Path, str]]:
    """The file and test of each argument that is the id of a job test."""
    named = set()
    for arg in args:
        if "[" in arg:
            file, _, test = arg.partition("::")
            named.add((Path(file), test))
    return named


def may_be_chosen(platform: Platform, options: Options, config: pytest.Config) -> bool:
    """Whether `choose` could choose a test of this platform.

    The tests of other platforms are not made at all: a suite of 200 tests and twenty platforms would make 4,000 of them
    to drop all but 200.
    """
    runs_unnamed = platform.name == HOME and not options.platforms
    return runs_unnamed or is_named(platform, options, config)


def is_named(platform: Platform, options: Options, config: pytest.Config) -> bool:
    """Whether somebody has named this platform: by --platform, -m, the id of a test, or --resume."""
    if options.platforms:
        return platform.name in options.platforms
    expression = config.getoption("markexpr") or ""
    if platform.name in names_in(expression):
        return True
    if is_named_by_marks(expression, platform):
        return True
    ids = (*config.args, *config.stash.get(WANTED, frozenset()))
    return any(f"[{platform.name}-" in test for test in ids)


def names_directly(name: str, config: pytest.Config) -> bool:
    """Whether -m, the id of a test or --resume has the name of a platform; `not NAME` leaves it out."""
    expression = config.getoption("markexpr") or ""
    ids = (*config.args, *config.stash.get(WANTED, frozenset()))
    names = names_in(expression)
    is_wanted = any(matches(expression, marks) for marks in ([name], names)) and not matches(expression, ())
    return (name in names and is_wanted) or any(f"[{name}-" in test for test in ids)


def is_named_by_marks(expression: str, platform: Platform) -> bool:
    """Whether -m is true with the marks of a platform, and false for a test without marks."""
    return matches(expression, platform.all_marks) and not matches(expression, ())


def choose(
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
    by_id = _named_by_id(config.args)
    resumed = config.stash.get(WANTED, frozenset())
    chosen: list[pytest.Item] = []
    left_out: set[str] = set()
    not_enabled: dict[str, bool] = {}  # platform: whether one of its tests, or the platform, was named directly
    for item in items:
        platform = case_of(item).platform
        name = platform.name
        if options.platforms and name not in options.platforms:
            left_out.add(name)
            continue
        named_directly = (
            name in options.platforms
            or name in names_in(expression)
            or (item.path, item.nodeid.partition("::")[2]) in by_id
            or item.nodeid in resumed
        )
        named_by_mark = is_named_by_marks(expression, platform)
        if name == HOME or ((named_directly or named_by_mark) and (options.dry_run or enabled(name))):
            chosen.append(item)
            continue
        left_out.add(name)
        if named_by_mark or (named_directly and not expression):
            not_enabled[name] = not_enabled.get(name, False) or named_directly
    refused = [name for name, named_directly in not_enabled.items() if named_directly]
    if not refused and not chosen:
        refused = list(not_enabled)
    if refused:
        platforms = {case_of(item).platform.name: case_of(item).platform for item in items}
        raise pytest.UsageError(_not_enabled([platforms[name] for name in refused], options))
    return chosen, sorted(left_out)


def _not_enabled(platforms: Sequence[Platform], options: Options) -> str:
    """What to type for platforms that were named and are not enabled."""
    names = [platform.name for platform in platforms]
    site = checkout.site_option(options.site)
    again = "".join(f" --platform {name}" for name in names)
    if options.try_unsupported:
        again += " --try-unsupported"
    verb = "is" if len(names) == 1 else "are"
    lines = [
        f"{', '.join(names)} {verb} not enabled on this site, so nothing was submitted. To enable and run:",
        f"    python -m platforms enable {' '.join(names)}{site}",
        f"    pytest{again}{site}",
        "(with --dry-run the jobs are shown without enabling anything)",
    ]
    for platform in platforms:
        why = why_all_skipped(platform, options)
        if why is not None:  # to enable it would run nothing, or little
            lines.append(why)
    return "\n".join(lines)
