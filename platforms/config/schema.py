"""Reads YAML files into frozen `Platform` and `Site`; reports all problems of all files at once.

`python -m platforms.config > platforms/schema.json` writes the JSON schema that editors check platform files with.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePath, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, PrivateAttr, create_model

from platforms.config import loading, yaml_lines
from platforms.config.devices import DeviceCount, count_accelerators
from platforms.config.keys import (
    STRICT,
    CommittedKeys,
    ContainerKeys,
    KubernetesKeys,
    ObstacleOrReason,
    PolicyKeys,
    SlurmKeys,
    StackKeys,
)
from platforms.config.scheduler_keys import SchedulerKeys
from platforms.config.values import (
    Absolute,
    Count,
    CountOrAuto,
    Day,
    Filled,
    HasDefault,
    Mark,
    Name,
    NoMpiLauncher,
    NoOtherDeviceName,
    Option,
    PlainFolder,
    PlatformLayout,
    Seconds,
    Some,
    Text,
    TimeOfDay,
    Unique,
    Variable,
    ZeroOrMore,
    ZeroOrMoreOrAuto,
)
from platforms.config.yaml_lines import Document
from platforms.job import ConfigError, Layout

Unit = Literal["cpu", "gpu", "ipu", "csx"]
Layouts = Annotated[tuple[PlatformLayout, ...], Field(json_schema_extra={"minItems": 1}), Some, Unique]
Configurations = Annotated[
    tuple[Literal["gbs32", "tuned"], ...], Field(json_schema_extra={"minItems": 1}), Some, Unique
]


class CommonKeys(BaseModel):
    """Keys of a platform for all benchmarks, which one benchmark may override."""

    model_config = STRICT

    configurations: Configurations = Field(("gbs32", "tuned"), description="which configurations run")
    size: Literal["smoke", "quick", "subset", "full"] = Field("quick", description="how much is trained")
    dtype: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = Field(
        "auto",
        description="number format of `tuned`, and under `benchmarks:` also in place of a preset's; auto: the best "
        "that the device computes in",
    )
    launcher: Annotated[Literal["auto", "none", "torchrun", "srun", "poprun"], NoMpiLauncher] = Field(
        "auto", description="what starts the ranks of a job"
    )
    ranks_per_device: Count = Field(1, description="processes per device")
    devices_per_replica: Count = Field(1, description="ipu: devices over which each copy of the model is spread")
    replicas_per_rank: Count = Field(1, description="ipu, csx: copies of the model that each process drives")
    threads_per_rank: CountOrAuto = Field(None, description="CPU threads of each rank; auto: cores / ranks")
    workers: ZeroOrMoreOrAuto = Field(None, description="loader processes of each rank; auto: the job decides")
    time_limit_s: Seconds = Field(
        3600.0, alias="time_limit", description="how long a job may run", json_schema_extra={"default": "1:00:00"}
    )
    data_dir: Filled = Field(
        "data",
        description="folder of the data sets on the machine that runs the job; a benchmark's own is its data set",
    )
    arguments: tuple[Text, ...] = Field((), description="words added to the command line of the job")


class BenchmarkKeys(CommonKeys):
    """Keys of one benchmark. Only keys that are written count (`model_fields_set`); the others are the platform's."""

    layouts: Layouts = Field((), description="in place of the platform's default set of layouts")


class PlatformFile(CommonKeys):
    """One platform of hpc-ml-bench: where benchmarks run, and how. The file's name is the platform's name and mark."""

    scheduler: Name = Field("local", description="what starts jobs there")
    device: Annotated[Literal["auto", "cpu", "gpu", "ipu", "csx"], NoOtherDeviceName] = Field(
        "auto", description="device family; auto: what this machine has (scheduler local only)"
    )
    marks: Annotated[tuple[Mark, ...], Unique] = Field((), description="pytest marks beside the platform's own name")
    layouts: Annotated[Mapping[Name, Layouts], HasDefault] = Field(
        {"default": ("auto",)}, description="named sets of nodes x devices per node: {default: [1x4], large: [2x4]}"
    )
    mode: Literal["overlap", "blocking"] = Field("overlap", description="how it is measured (docs/measuring.md)")
    start_limit_s: Seconds = Field(
        43200.0,
        alias="start_limit",
        description="how long it may wait to start",
        json_schema_extra={"default": "12:00:00"},
    )
    grace_s: Seconds = Field(
        10.0,
        alias="grace",
        description="local and ssh: how long a job that must end has from SIGTERM to SIGKILL",
        json_schema_extra={"default": "10s"},
    )
    node_facts: Annotated[bool, Field(strict=True)] = Field(
        True, description="whether the log of a test's own command says what its nodes are (docs/wire.md)"
    )
    max_running: Count = Field(1, description="jobs submitted at the same time; default: 1 for local and ssh, else 8")
    max_queued: Count | None = Field(
        None, description="of these, jobs that wait to start at the same time; default: all of them"
    )
    retries: ZeroOrMore = Field(
        1, description="how often a job begins again that the machine failed: node lost, preempted, evicted"
    )
    poll_s: Annotated[float, Field(gt=0, strict=True)] = Field(
        0.5,
        description="longest time in seconds between two looks at the jobs; default: local 0.5, kubernetes 1, ssh 5, "
        "else 10; with more than 10 Slurm is never asked sooner",
    )
    python: Filled = Field(
        "auto",
        description="the job's Python; auto: the one that runs pytest; elsewhere the one that `prepare --env` made, "
        "else python3",
    )
    transport: Literal["local", "openssh", "paramiko"] = Field(
        "local", description="how commands reach the login node: from here, by ssh's own connections, by paramiko"
    )
    host: Filled | None = Field(None, description="the login node, as ssh knows it: a name of ~/.ssh/config, user@host")
    ssh_config: Filled | None = Field(None, description="ssh's configuration in place of ~/.ssh/config")
    login_shell: Annotated[bool, Field(strict=True)] = Field(
        False, description="run commands by `bash -lc`, where only a login shell finds sbatch"
    )
    work_dir: Absolute | None = Field(
        None, description="folder for code, scripts, logs and data, seen by login and compute nodes; for slurm and ssh"
    )
    modules: tuple[Filled, ...] = Field((), description="environment modules that a job loads")
    setup: tuple[Text, ...] = Field((), description="shell lines of a job before the ranks start")
    container: ContainerKeys | None = Field(None, description="the container in which the ranks run")
    slurm: SlurmKeys = Field(
        default=SlurmKeys.model_construct(), description="options of sbatch and srun, with scheduler slurm"
    )
    kubernetes: KubernetesKeys = Field(
        default=KubernetesKeys.model_construct(), description="cluster and manifest, with scheduler kubernetes"
    )
    policy: PolicyKeys = Field(
        default=PolicyKeys.model_construct(), description="the site's rules, checked before submitting"
    )
    env: Mapping[Variable, Text] = Field({}, description="environment variables of the job")
    stacks: Mapping[Name, StackKeys] = Field(
        {}, description="named sets of what can differ: {cuda13: {modules: [cuda/13]}}; --ab compares two of them"
    )
    benchmarks: Mapping[Name, BenchmarkKeys] = Field({}, description="what one benchmark needs otherwise")
    unsupported: Mapping[Name, ObstacleOrReason] = Field(
        {}, description="benchmark: why it cannot run there, a text or {reason: …, source: …} (it is skipped)"
    )
    cannot_run: ObstacleOrReason | None = Field(
        None, description="why none of the suite's benchmarks can run there (they are skipped), as for unsupported"
    )
    committed: tuple[CommittedKeys, ...] = Field(
        (), description="what a contract promises, met once so many runs in a row have met it"
    )
    until: Day = Field(None, description="last day of the machine, YYYY-MM-DD; its tests are skipped afterwards")
    successor: Name | None = Field(None, description="name of the platform to use once this one has ended")
    replaces: Annotated[bool, Field(strict=True)] = Field(
        False, description="true in a site's file that stands in for a shipped one of the same name"
    )


class Platform(PlatformFile):
    """A named place to run, complete and frozen. `missing` are the keys `${site.…}` without a value."""

    name: Mark
    source: Path = Path()
    missing: tuple[str, ...] = ()
    _stack: str | None = PrivateAttr(None)

    @property
    def stack(self) -> str | None:
        """The name of the stack that `with_stack` has put in; None for the platform's own."""
        return self._stack

    @property
    def all_marks(self) -> tuple[str, ...]:
        """The pytest marks of its tests, its own name first."""
        return tuple(dict.fromkeys((self.name, *self.marks)))

    def ended_by(self, day: datetime.date) -> str | None:
        """Return a sentence about a machine that ended before that day; None while it is in service."""
        if self.until is None or day <= self.until:
            return None
        instead = f"; use {self.successor}" if self.successor else ""
        return f"this machine ended on {self.until} (until: in {self.source}){instead}"

    def obstacle(self, benchmark: str) -> str | None:
        """Return why a benchmark cannot run there, all reasons in one text; None where the file names none."""
        return "; ".join(self.reasons_against(benchmark)) or None

    def reasons_against(self, benchmark: str) -> tuple[str, ...]:
        """Return why a benchmark cannot run there, each reason with its source; empty where the file names none."""
        reasons = []
        if self.cannot_run is not None:
            reasons.append(f"none of the suite's benchmarks can run: {self.cannot_run}")
        if benchmark in self.unsupported:
            reasons.append(str(self.unsupported[benchmark]))
        return tuple(reasons)

    @property
    def unit(self) -> Unit:
        """What a layout counts. load_platforms replaces `auto`; anywhere else it means a CPU."""
        return "cpu" if self.device == "auto" else self.device

    def for_benchmark(self, benchmark: str | None) -> Platform:
        """Return this platform with the keys under `benchmarks: {<benchmark>: …}` in place of its own."""
        keys = self.benchmarks.get(benchmark or "")
        if keys is None:
            return self
        update = {key: getattr(keys, key) for key in keys.model_fields_set}
        if "layouts" in update:
            update["layouts"] = {**self.layouts, "default": update["layouts"]}
        return self.model_copy(update=update)

    def with_stack(self, name: str | None) -> Platform:
        """Return this platform with what one of its stacks has in place of its own; `env` is added to its own.

        The stack's `code` changes nothing here: the caller builds the archive. None is the platform itself.
        Raises ConfigError when there is no such stack.
        """
        if name is None:
            return self
        if name not in self.stacks:
            none = f"(it has none: write `stacks: {{{name}: …}}`)"
            hint = loading.nearest(name, self.stacks) if self.stacks else none
            raise ConfigError([f"{self.source}: stacks: there is no stack {name!r} {hint}"])
        keys = self.stacks[name]
        update: dict[str, object] = {"env": {**self.env, **keys.env}}
        for key in keys.model_fields_set & {"modules", "python", "setup", "arguments"}:
            update[key] = getattr(keys, key)
        if keys.image is not None and self.container is not None:
            update["container"] = self.container.model_copy(update={"image": keys.image})
        elif keys.image is not None:
            update["kubernetes"] = self.kubernetes.model_copy(update={"image": keys.image})
        platform = self.model_copy(update=update)
        platform._stack = name
        return platform

    def data_folder(self, benchmark: str, size: str, root: Path) -> str:
        """Return where a benchmark's data set lies: its own `data_dir:`, else `<data_dir>/<benchmark>-<size>`.

        Relative paths start in work_dir, on this machine in `root`.
        """
        own = self.benchmarks.get(benchmark)
        if own is not None and "data_dir" in own.model_fields_set:
            return str(self._base(root) / own.data_dir)
        return str(PurePosixPath(self.data_root(root)) / f"{benchmark}-{size}")

    def data_root(self, root: Path) -> str:
        """Return `data_dir:` as an absolute path; a relative one starts where those of `data_folder` do."""
        return str(self._base(root) / self.data_dir)

    def _base(self, root: Path) -> PurePath:
        return root if self.work_dir is None else PurePosixPath(self.work_dir)

    def layout_list(self, benchmark: str | None = None, set_name: str = "default") -> tuple[Layout, ...]:
        """Return the layouts of one named set. Raises ConfigError when there is no such set."""
        layouts = self.for_benchmark(benchmark).layouts
        if set_name not in layouts:
            hint = loading.nearest(set_name, layouts)
            raise ConfigError([f"{self.source}: layouts: there is no set {set_name!r} {hint}"])
        return tuple(_resolved_layout(layout, 1, self.unit) for layout in layouts[set_name])


class Site(BaseModel):
    """A site's settings, `site.yaml`: which platforms may be used, and the values of `${site.…}`."""

    model_config = STRICT

    enabled: Annotated[tuple[Name, ...], Unique] = ()
    max_device_hours: Annotated[float, Field(ge=0, strict=True)] | None = None
    keep_days: Annotated[float, Field(ge=0, strict=True)] = 30.0
    keep_failed_days: Annotated[float, Field(ge=0, strict=True)] = 180.0
    name: Name = "site"
    history: PlainFolder | None = None
    night_ends: TimeOfDay = datetime.time(12)
    false_reds_a_month: Annotated[float, Field(gt=0, le=1000, strict=True)] = 1.0
    options: Mapping[str, Option] = {}
    values: Mapping[Variable, Text] = {}


def load_platforms(
    folders: Sequence[Path],
    site: Site | None = None,
    *,
    schedulers: Mapping[str, SchedulerKeys],
    benchmarks: Collection[str] | None = None,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> dict[str, Platform]:
    """Load every `*.yaml` of the folders, by name. A missing folder has none.

    A file of a later folder takes the place of an earlier one of the same name only when it says `replaces: true`.
    `schedulers` has what each scheduler makes of the keys; `benchmarks` are the names that exist, if the caller knows
    them; `root` is where device files are looked for.
    Raises ConfigError with every problem of every file.
    """
    platforms, problems = read_platforms(
        folders, site, schedulers=schedulers, benchmarks=benchmarks, environ=environ, root=root
    )
    if problems:
        raise ConfigError([problem for of_file in problems.values() for problem in of_file])
    return platforms


def read_platforms(
    folders: Sequence[Path],
    site: Site | None = None,
    *,
    schedulers: Mapping[str, SchedulerKeys],
    benchmarks: Collection[str] | None = None,
    environ: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
) -> tuple[dict[str, Platform], dict[str, list[str]]]:
    """Load the platforms as `load_platforms` does, and return the problems of the others, by the names of their files.

    Raises ConfigError for a folder that cannot be read.
    """
    documents: dict[str, Document] = {}
    platforms: dict[str, Platform] = {}
    problems: dict[str, list[str]] = {}
    read: list[Document] = []
    for path in _files(folders, problems):
        missing: list[str] = []
        document = yaml_lines.read(path, loading.substitution(site.values if site else {}, environ, missing))
        loading.check_file(document, documents.get(path.stem))
        loading.check_benchmarks(document, benchmarks)
        loading.check_holes(document)
        try:
            platform = _platform(document, missing, schedulers)
        except Exception as error:  # what we get wrong in one file must not keep the others from running
            platform = None
            document.complain((), f"cannot be read: {error!r} (a mistake in the suite: please report it)")
        documents[path.stem] = document
        read.append(document)
        if platform:
            platforms[path.stem] = platform
    for document in read:
        loading.check_marks(document, documents)
    for document in read:
        if document.problems:
            problems.setdefault(document.path.stem, []).extend(document.problems)
    found = count_accelerators(environ, root)
    sound = {name: _resolved(platform, found) for name, platform in platforms.items() if name not in problems}
    return sound, problems


def _platform(document: Document, missing: Sequence[str], schedulers: Mapping[str, SchedulerKeys]) -> Platform | None:
    """Build the platform of one file. Returns None, with the reasons in `document.problems`, if that fails."""
    model: type[Platform] = Platform
    defaults: Mapping[str, object] = {}
    scheduler = loading.scheduler_of(document, schedulers)
    if scheduler is not None and document.value is not None:
        name = str(document.value.get("scheduler", "local"))
        loading.check_scheduler_keys(document, scheduler, [other for other in schedulers if other != name])
        loading.check_stacks(document, scheduler)
        defaults = scheduler.defaults
        if scheduler.own is not None:
            model = _platform_with(name, scheduler.own)
    own = {"name": document.path.stem, "source": document.path, "missing": missing}
    return loading.build(document, model, defaults, **own)


@cache
def _platform_with(scheduler: str, own: type[BaseModel]) -> type[Platform]:
    """Return a model of a platform with a scheduler's own keys under the scheduler's name."""
    keys = (own, Field(default=own.model_construct(), description=f"keys of scheduler {scheduler}"))
    return create_model(f"Platform_{scheduler}", __base__=Platform, **{scheduler: keys})  # type: ignore[call-overload,no-any-return]


def load_site(folder: Path) -> Site:
    """Load `site.yaml` of a site's folder; an empty Site when there is none. Raises ConfigError with all problems."""
    path = folder / "site.yaml"
    if not path.exists():
        return Site.model_construct()  # start-up is counted: its defaults need no validation
    document = yaml_lines.read(path)
    if document.empty:  # everything in it is commented out
        return Site()
    site = loading.build(document, Site)
    if site is None or document.problems:
        raise ConfigError(document.problems)
    return site


def schema() -> dict[str, Any]:
    """Return the JSON schema of a platform file."""
    schema: dict[str, Any] = _untitled(PlatformFile.model_json_schema())
    for part in ("BenchmarkKeys", "StackKeys"):
        for key in schema["$defs"][part]["properties"].values():
            del key["default"]  # what is not written there is the platform's
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _files(folders: Sequence[Path], problems: dict[str, list[str]]) -> Iterator[Path]:
    for folder in folders:
        try:
            paths = sorted(folder.iterdir()) if folder.exists() else []
        except OSError as error:
            raise ConfigError([f"{folder}:1: cannot be read: {error.strerror}"]) from None
        for path in paths:
            if path.suffix == ".yml":
                mistake = f"{path}:1: would not be read (rename it to {path.stem}.yaml)"
                problems.setdefault(path.stem, []).append(mistake)
            elif path.suffix == ".yaml" and not path.name.startswith("."):
                yield path


def _resolved(platform: Platform, found: DeviceCount) -> Platform:
    """Replace `auto` by what this machine has; only platforms of the local scheduler may have it."""
    here: Unit = "cpu" if found.kind == "cpu" else "gpu"
    device = here if platform.device == "auto" else platform.device
    devices = found.count if device == here else 1

    def real(layouts: Layouts) -> Layouts:
        return tuple(dict.fromkeys(_resolved_layout(layout, devices, device) for layout in layouts))

    layouts = {name: real(layouts) for name, layouts in platform.layouts.items()}
    benchmarks = {
        name: keys.model_copy(update={"layouts": real(keys.layouts)}) if "layouts" in keys.model_fields_set else keys
        for name, keys in platform.benchmarks.items()
    }
    return platform.model_copy(update={"device": device, "layouts": layouts, "benchmarks": benchmarks})


def _resolved_layout(layout: Layout | Literal["auto"], devices: int, unit: Unit) -> Layout:
    """A layout with its unit. `auto` is one node with all its devices."""
    if layout == "auto":
        return Layout(1, devices, unit)
    return replace(layout, unit=unit)


def _untitled(value: Any) -> Any:
    """Remove the titles that pydantic makes of names, but not a key called title."""
    if isinstance(value, list):
        return [_untitled(item) for item in value]
    if isinstance(value, dict):
        return {key: _untitled(item) for key, item in value.items() if key != "title" or not isinstance(item, str)}
    return value
