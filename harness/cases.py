"""The cases of a test: one for each platform, layout and configuration that it runs on, and their ids."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from harness import manifests
from harness.options import Options
from platforms import checkout
from platforms.config.durations import seconds_of
from platforms.config.loading import nearest
from platforms.config.schema import Platform
from platforms.config.values import no_mpi_launcher
from platforms.job import Layout

SETTINGS = ("configuration", "size", "mode", "variant", "dtype", "cache")
WORKLOAD_KEYWORDS = frozenset(
    ("benchmark", "command", "launcher", "manifest", "presets", "arguments", "time_limit", *manifests.PLACE)
)
LAUNCHERS = ("platform", "torchrun", "srun", "poprun", "none")  # what may start a test's own command
HOME = "local"  # the one platform that runs without being enabled and named


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
