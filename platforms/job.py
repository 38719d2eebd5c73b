"""What the suite says about one job: what was asked, its states, its outcome, what it measured, and every error.

Standard library only, and it imports nothing of ours, so that any module may import it.

The errors that a user can see::

    BenchError
    ├── ConfigError         a YAML file or an option is wrong; `problems` lists everything at once
    ├── RefusedError        the request is understood and not allowed (not enabled, too many device-hours, …)
    ├── AwayError           no answer for now: who asks again later may get one
    │   ├── LoginNeeded     only a person can open the connection again; `command` is what to type
    │   └── NoRoom          the answer is "not now": a quota is used up, and nothing was submitted
    └── JobError            one job; carries its `status` and where its evidence lies
        ├── MachineError    the machine could not run it                     -> ERROR
        ├── WorkloadError   it ran and is wrong                              -> FAILED
        ├── StillUnsupported  it was tried, and cannot run there              -> SKIPPED
        └── StillPending    we stopped waiting                               -> PENDING
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

# --- what is asked ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Nodes x devices per node, written `2x4`, with its unit `2x4gpu`."""

    nodes: int
    devices_per_node: int
    unit: str

    @classmethod
    def parse(cls, text: str, unit: str) -> Layout:
        """Read `2x4`. Raises ValueError with a sentence when it is anything else."""
        match = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
        if not match:
            raise ValueError(f"{text!r} is no layout: write nodes x devices per node, as in 1x4")
        return cls(int(match[1]), int(match[2]), unit)

    @property
    def devices(self) -> int:
        return self.nodes * self.devices_per_node

    def __str__(self) -> str:
        return f"{self.nodes}x{self.devices_per_node}{self.unit}"


@dataclass(frozen=True)
class DeviceUnit:
    """What a layout counts.

    Attributes:
        family: its --device in models/.
        types: what jobs call such a device in `hpcml_start`.
        driven_together: whether one rank may drive several.
        spreads: whether a copy of the model may be spread over several.
    """

    family: str
    types: tuple[str, ...]
    driven_together: bool = False
    spreads: bool = False


DEVICE_UNITS: Mapping[str, DeviceUnit] = MappingProxyType(
    {
        "cpu": DeviceUnit("cpu", ("cpu",)),
        "gpu": DeviceUnit("cuda", ("cuda", "rocm")),  # torch for ROCm calls its devices cuda, too
        "ipu": DeviceUnit("ipu", ("ipu",), driven_together=True, spreads=True),
        "csx": DeviceUnit("csx", ("csx",), driven_together=True),
    }
)


class Role(StrEnum):
    """Why a job was begun."""

    MEASURE = "measure"
    """A test asked for it."""
    CONFIRM = "confirm"
    """The repeat of a suspect run, on other nodes."""
    PINNED = "pinned"
    """The repeat of a suspect run, on its own nodes."""
    VISIT = "visit"
    """One of the jobs of `--each-node`."""
    AB = "ab"
    """A run of an A/B comparison."""
    CHECK = "check"
    """A user asked whether these nodes are as fast as others (`--check`)."""


@dataclass(frozen=True)
class Trial:
    """Which of several jobs of one test in one run this is. The only job of a test has the default.

    Attributes:
        role: why it was begun.
        label: of a campaign, as `--label` has named it.
        arm: of an A/B comparison: the name of a stack.
        block: of an A/B comparison, from 1. The runs of a block share their nodes.
        node: the one that is visited.
        repeat: its number, from 1, among jobs that are otherwise alike.
    """

    role: Role = Role.MEASURE
    label: str | None = None
    arm: str | None = None
    block: int | None = None
    node: str | None = None
    repeat: int | None = None

    @property
    def key(self) -> str:
        """What tells it from the other jobs of its test in the same run: `confirm-1`; "" for the only one."""
        if self == ONLY:
            return ""
        block = None if self.block is None else f"b{self.block}"
        parts = (self.role, self.label, self.arm, block, self.node, self.repeat)
        return "-".join(str(part) for part in parts if part is not None)

    @property
    def in_series(self) -> bool:
        """Whether the gate judges it: a test asked for it, and it is no part of a campaign.

        The nodes of a campaign may be half upgraded, so its runs must not become what later nights are compared with.
        """
        return self.role is Role.MEASURE and self.label is None

    def content(self) -> dict[str, object]:
        """What differs from the default, as it stands in run.json and in the history."""
        return {name: value for name, value in vars(self).items() if value != getattr(ONLY, name)}

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Trial:
        """Read what `content` has written.

        Keys that are not its own are left out. Raises ValueError.
        """
        values = {name: content[name] for name in vars(ONLY) if content.get(name) is not None}
        return cls(**{**values, "role": Role(values.get("role", Role.MEASURE))})


ONLY = Trial()


@dataclass(frozen=True)
class JobSpec:
    """One complete submission. A scheduler renders it to text without sending a request.

    `arguments` follow the code archive where there is one (`train resnet50 …`), and are the whole command line of a
    user's own program otherwise. `request` is what the job must answer in `hpcml_start` (docs/wire.md), key by key.
    A copy of the model is spread over `devices_per_replica` devices, and a rank drives `replicas_per_rank` copies: both
    are 1 on CPUs and GPUs.
    `python` "auto" lets the scheduler choose; `data_dir` is where the data set must lie on the machine. `run` is the
    label that all jobs of one run have, eight characters; `avoid_nodes` are those that failed earlier attempts.
    `nodes` are the ones that it must run on, as many as the layout has; () leaves the choice to the scheduler.
    `reservation` is the scheduler's name of one that it may use.
    `stack` is that of the platform's `stacks:` with which the scheduler renders it; None for the platform's own.
    `group` is that of its nodes in an upgrade, `treated` or `control`.
    `image` is the container's, as the platform's file names it; a scheduler renders it from its own keys.
    `unsupported` is why the platform's file says that it cannot run there, if it is tried all the same; else None.
    `manifest` and `cluster` are for Kubernetes: a test's own manifest (a file, or parsed), and its own kubeconfig,
    context or namespace in place of the platform's.
    `node_facts` is the code archive with which a user's own program is run, so that its nodes are known.
    `values` are those that the test's id does not say, since pytest numbers them; else None.
    """

    name: str
    test: str
    platform: str
    layout: Layout
    arguments: tuple[str, ...]
    benchmark: str | None = None
    launcher: str = "none"
    ranks_per_device: int = 1
    devices_per_replica: int = 1
    replicas_per_rank: int = 1
    threads_per_rank: int | None = None
    python: str = "python3"
    archive: Path | None = None
    data_dir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    time_limit_s: float = 3600.0
    start_limit_s: float = 3600.0
    grace_s: float = 10.0
    request: Mapping[str, object] = field(default_factory=dict)
    run: str = ""
    manifest: Path | Mapping[str, object] | Sequence[Mapping[str, object]] | None = None
    avoid_nodes: tuple[str, ...] = ()
    image: str | None = None
    cluster: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    reservation: str | None = None
    stack: str | None = None
    trial: Trial = ONLY
    group: str | None = None
    unsupported: str | None = None
    node_facts: Path | None = None
    values: str | None = None

    @property
    def key(self) -> str:
        """What identifies its test and trial in a run: the test's id, and for one of several trials `…]+confirm-1`."""
        return job_key(self.test, self.trial.key)

    @property
    def code(self) -> Path | None:
        """The code archive that must lie on the machine: of a benchmark, or to read the facts of nodes."""
        return self.archive or self.node_facts

    @property
    def replicas(self) -> int:
        """Copies of the model that train together. On CPUs and GPUs each rank has one."""
        return self.layout.nodes * self.replicas_per_node

    @property
    def replicas_per_node(self) -> int:
        """Processes share a device (ranks_per_device), or copies span several (devices_per_replica), never both."""
        return self.layout.devices_per_node * self.ranks_per_device // self.devices_per_replica

    @property
    def ranks_per_node(self) -> int:
        return self.replicas_per_node // self.replicas_per_rank

    @property
    def ranks(self) -> int:
        return self.layout.nodes * self.ranks_per_node

    @property
    def starts_ranks(self) -> bool:
        """Whether the suite starts as many ranks as the layout has; a user's own program may start others."""
        return self.benchmark is not None or self.launcher != "none"

    @property
    def device_hours(self) -> float:
        """What it may cost at most, in device-hours: devices x time limit."""
        return self.layout.devices * self.time_limit_s / 3600

    def named(self, run: Run) -> Run:
        """A run of this job, with what it was a run of."""
        return replace(
            run,
            name=self.name,
            test=self.test,
            platform=self.platform,
            benchmark=self.benchmark,
            layout=str(self.layout),
        )

    def rank_command(self, archive: str | None = None) -> list[str]:
        """The command line of one rank, launcher excluded, with the archive where it lies on the machine."""
        if self.archive is None:
            return list(self.arguments)
        return [archive or str(self.archive), *self.arguments]


def setting_of(test: str) -> str:
    """What a test's id says after platform and layout, and no job's name does: `tuned-smoke`; "" for nothing."""
    case = test.partition("[")[2].removesuffix("]")
    return "".join(case.split("-", 2)[2:])


def job_key(test: str, trial: str) -> str:
    """What identifies a job's test and trial in a run, from the test's id and the key of the trial."""
    return f"{test}+{trial}" if trial else test


def job_name(label: str, layout: Layout, run_id: str, key: str, attempt: int = 1) -> str:
    """A readable name, unique and always the same for one attempt of one job of one run: `resnet50-1x4gpu-k3f9a2bc`.

    The key is that of the JobSpec.

    Legal as a Slurm job name and as a Kubernetes name; at most 36 characters, the limit of an IPUJob.
    """
    head = re.sub(r"[^a-z0-9]+", "-", f"{label}-{layout}".lower()).strip("-")
    key = _digest(f"{run_id}\n{key}\n{attempt}")
    return f"{head[:27].rstrip('-')}-k{key}"


def run_label(run_id: str) -> str:
    """What all jobs of one run have in common at a scheduler: eight characters, legal as a label's value."""
    return f"r{_digest(run_id)}"


def _digest(text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest()).decode().lower()[:7]


_SECRET = re.compile(
    r"passw|passphrase|secret|(?<![a-z])(token|credentials?|(api|access|private)[_-]?key)(?![a-z])", re.IGNORECASE
)
_SECRET_PLACE = re.compile(r"(name|file|path|dir)s?$", re.IGNORECASE)  # where a secret lies is no secret


def names_a_secret(name: str) -> bool:
    """Whether a key or variable is called like one whose value must never be written down: HF_TOKEN, db_password."""
    return bool(_SECRET.search(name)) and not _SECRET_PLACE.search(name)


# --- how it goes -----------------------------------------------------------------------------------------------------


class Outcome(StrEnum):
    """The four ways a test can end beside PASSED (docs/outcomes.md)."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"
    PENDING = "pending"


class State(StrEnum):
    """Every state a job can be in, whatever the scheduler calls it; the value is how people read it."""

    SUBMITTED = "submitted"
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    UNKNOWN = "unknown"

    SUCCEEDED = "succeeded"

    EXITED = "exited with an error"
    SIGNALLED = "ended by a signal"
    OUT_OF_MEMORY = "out of memory"
    TIME_LIMIT = "time limit"
    COMPILE_FAILED = "compile failed"
    DEVICE_OUT_OF_MEMORY = "device out of memory"
    GATE = "a gate failed"
    INCOMPLETE = "no complete summary"

    SUBMIT_REFUSED = "submission refused"
    START_DEADLINE = "start deadline passed"
    NEVER_ADMISSIBLE = "can never start"
    IMAGE = "image cannot be pulled"
    SECRET = "secret or config missing"
    VOLUME = "volume cannot be mounted"
    NOT_STARTABLE = "command cannot be started"
    NODE_LOST = "node lost"
    PREEMPTED = "preempted"
    EVICTED = "evicted by the node"
    CANCELLED = "cancelled"
    LOST = "lost"
    CONTROLLER_AWAY = "scheduler did not answer"
    REQUEST_REFUSED = "request refused"
    DATA_MISSING = "data missing"
    DATA_CORRUPT = "data corrupt"

    UNSUPPORTED = "not supported there"

    @property
    def outcome(self) -> Outcome:
        return OUTCOMES[self]

    @property
    def live(self) -> bool:
        """The job may still change."""
        return self.outcome is Outcome.PENDING


OUTCOMES: Mapping[State, Outcome] = MappingProxyType(
    {
        **dict.fromkeys(
            [State.SUBMITTED, State.QUEUED, State.STARTING, State.RUNNING, State.UNKNOWN],
            Outcome.PENDING,
        ),
        State.SUCCEEDED: Outcome.PASSED,
        # it ran and is wrong
        **dict.fromkeys(
            [
                State.EXITED,
                State.SIGNALLED,
                State.OUT_OF_MEMORY,
                State.TIME_LIMIT,
                State.COMPILE_FAILED,
                State.DEVICE_OUT_OF_MEMORY,
                State.GATE,
                State.INCOMPLETE,
            ],
            Outcome.FAILED,
        ),
        # the machine could not run it
        **dict.fromkeys(
            [
                State.SUBMIT_REFUSED,
                State.START_DEADLINE,
                State.NEVER_ADMISSIBLE,
                State.IMAGE,
                State.SECRET,
                State.VOLUME,
                State.NOT_STARTABLE,
                State.NODE_LOST,
                State.PREEMPTED,
                State.EVICTED,
                State.CANCELLED,
                State.LOST,
                State.CONTROLLER_AWAY,
                State.REQUEST_REFUSED,
                State.DATA_MISSING,
                State.DATA_CORRUPT,
            ],
            Outcome.ERROR,
        ),
        State.UNSUPPORTED: Outcome.SKIPPED,
    }
)

# Exit codes of our own jobs (docs/wire.md); a user's own program may mean anything by them.
WIRE_EXIT_STATES: Mapping[int, State] = MappingProxyType(
    {
        3: State.GATE,
        4: State.COMPILE_FAILED,
        5: State.DEVICE_OUT_OF_MEMORY,
        65: State.DATA_CORRUPT,
        66: State.DATA_MISSING,
        69: State.NODE_LOST,
        78: State.REQUEST_REFUSED,
    }
)


# Ends that confirm `unsupported:` of a platform's file, if such a test is tried: it does not compile, or not fit.
CONFIRM_UNSUPPORTED = frozenset({State.COMPILE_FAILED, State.DEVICE_OUT_OF_MEMORY})

LAST_SIGNAL = 64  # of Linux


def state_of_exit(exit_code: int, *, speaks_wire: bool) -> State:
    """What an exit code says, 126 and 127 being a shell's words for a command that cannot be started."""
    if exit_code == 0:
        return State.SUCCEEDED
    if exit_code in (126, 127):
        return State.NOT_STARTABLE
    if speaks_wire and exit_code in WIRE_EXIT_STATES:
        return WIRE_EXIT_STATES[exit_code]
    return State.EXITED if signal_of_exit(exit_code) is None else State.SIGNALLED


def signal_of_exit(exit_code: int | None) -> int | None:
    """The signal that a shell means by an exit code of 128 + n. A program may end with such a code by itself, which
    cannot be told apart; one that is no signal's, such as 255, is the program's own."""
    if exit_code is None or not 128 < exit_code <= 128 + LAST_SIGNAL:
        return None
    return exit_code - 128


UNFIT = "unfit: "  # begins the reason of a job whose nodes were vetted and are not used

# After these a job may begin again: the machine failed it, it holds nothing, and nothing that is asked must change.
RETRIED = frozenset({State.NODE_LOST, State.PREEMPTED, State.EVICTED})


@dataclass(frozen=True)
class Submitted:
    """One submission, as anybody finds it again: the scheduler's id, which it may give to another job one day, our name
    for it, which is unique, when (Unix seconds, by this machine's clock), and the folder of its evidence, in which lies
    what was submitted."""

    job_id: str
    name: str
    submitted_s: float
    folder: Path = Path()


@dataclass(frozen=True)
class Status:
    """What a scheduler knows of one job. Times are Unix seconds.

    Attributes:
        events: the last ones that the scheduler reported beside the state.
        failed_nodes: those of `nodes` that failed the job, where the scheduler says which; () if it does not.
        last_word: what the job itself left at the scheduler at its end, beside its log (docs/wire.md).
        problems, warnings: about the job's end; they become those of its run.
        away: the scheduler did not answer, so the job may have changed since.
        expected_s: when a waiting job is expected to start. It does not count as a change of the status, because it
            moves while nothing happens.
        nodes_energy_j: joules that the nodes took, by the scheduler's account, in that step of the job that took most.
        error: what prevented that the job's state could be read, if it is no answer of its scheduler.
    """

    state: State
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    nodes: tuple[str, ...] = ()
    submitted_s: float | None = None
    started_s: float | None = None
    ended_s: float | None = None
    events: tuple[str, ...] = ()
    last_word: str = field(default="", repr=False)
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    failed_nodes: tuple[str, ...] = ()
    away: bool = False
    expected_s: float | None = None
    nodes_energy_j: float | None = None
    error: Exception | None = field(default=None, repr=False, compare=False)

    @property
    def queue_s(self) -> float | None:
        if self.submitted_s is None or self.started_s is None:
            return None
        return max(0.0, self.started_s - self.submitted_s)

    @property
    def run_s(self) -> float | None:
        if self.started_s is None or self.ended_s is None:
            return None
        return self.ended_s - self.started_s

    def told(self, now_s: float) -> str:
        """Describe the status, as in `queued, expected to start 14:05: Priority`.

        The expected start stands there while the job waits, if the scheduler tells it. The time is this machine's, with
        the date if it is another day. A time that has passed is left out.
        """
        words = [self.state.value]
        if self.expected_s is not None and self.state.live and self.expected_s > now_s:
            now, then = time.localtime(now_s), time.localtime(self.expected_s)
            today = now[:3] == then[:3]
            words.append(f"expected to start {time.strftime('%H:%M' if today else '%Y-%m-%d %H:%M', then)}")
        return ": ".join(filter(None, (", ".join(words), self.reason)))

    def __str__(self) -> str:
        return f"{self.state.value}: {self.reason}" if self.reason else self.state.value


# --- what it measured ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    """One measured stretch of steps, over all ranks (docs/measuring.md).

    `samples` were counted on all ranks; `wall_s` is the time between two barriers, the maximum over ranks; `stall_s`
    and `compute_s` are, step by step, those of the rank that stalled longest. `stall_h2d_s` is the part of its stall
    that was the copy to the device; None where the job does not say it. `stall_s` and `compute_s` are both None where
    the device does not tell waiting from computing (`Run.no_split`).
    """

    samples: int
    steps: int
    wall_s: float
    stall_s: float | None
    compute_s: float | None
    stall_h2d_s: float | None = None

    @property
    def seconds_per_sample(self) -> float:
        return self.wall_s / self.samples


@dataclass(frozen=True)
class Metric:
    """A number that is judged against the runs before it.

    Attributes:
        value: finite.
        unit: as it is printed, such as `samples/s` or `GB/s`.
        better: which direction is good.
    """

    value: float
    unit: str
    better: Literal["higher", "lower"] = "higher"


def is_judgeable(value: float) -> bool:
    """Whether a value can be compared: it is finite, and so is its ratio to any other such value, and its square."""
    return value == 0 or 1e-150 < abs(value) < 1e150


@dataclass(frozen=True)
class ThroughputUnit:
    """In which unit people read, and the gate judges, the throughputs of a run, which itself counts samples.

    Attributes:
        item: what is counted.
        per_sample: how many of these a sample has.
    """

    item: Literal["sample", "token"] = "sample"
    per_sample: int = 1

    @property
    def name(self) -> str:
        return f"{self.item}s/s"

    def of(self, samples_per_s: float | None) -> float | None:
        """A throughput in this unit; None where it is not known."""
        return None if samples_per_s is None else samples_per_s * self.per_sample

    def metric(self, samples_per_s: float) -> Metric:
        return Metric(samples_per_s * self.per_sample, self.name)


def throughput_unit(start: Mapping[str, object]) -> ThroughputUnit:
    """The unit of a run, by its `hpcml_start`: tokens/s where a sample is a sequence of tokens (docs/wire.md)."""
    data = start.get("data")
    tokens = data.get("tokens_per_sample") if isinstance(data, Mapping) else None
    if type(tokens) is int and tokens > 0:
        return ThroughputUnit("token", tokens)
    return ThroughputUnit()


@dataclass(frozen=True)
class Run:
    """What a finished job measured, with its provenance and its doubts.

    Throughputs are samples/s over all devices; `throughput_unit` says how people read them.
    """

    name: str = ""
    test: str = ""
    platform: str = ""
    benchmark: str | None = None
    layout: str = ""
    windows: tuple[Window, ...] = field(default=(), repr=False)
    start: Mapping[str, object] = field(default_factory=dict, repr=False)
    summary: Mapping[str, object] = field(default_factory=dict, repr=False)
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    """The first lines of what a compiler or a device said of its failure; the log has all of them."""
    nodes: Mapping[str, Mapping[str, Mapping[str, object]]] = field(default_factory=dict, repr=False)
    """What each node is, by its name and part (docs/wire.md, hpcml_node)."""
    status: Status = field(default=Status(State.UNKNOWN), repr=False)
    folder: Path | None = None
    read_by_test: tuple[float, ...] = ()
    """Seconds per sample that a test read from the log of a program without windows."""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    """What else a test read from the log, by name: a bandwidth, a latency, FLOP/s."""

    @property
    def log(self) -> Path | None:
        return self.folder / "log" if self.folder else None

    @property
    def throughput_unit(self) -> ThroughputUnit:
        return throughput_unit(self.start)

    @property
    def samples(self) -> int:
        return sum(w.samples for w in self.windows)

    @property
    def wall_s(self) -> float:
        return math.fsum(w.wall_s for w in self.windows)

    @property
    def effective_throughput(self) -> float | None:
        """Samples/s that came out: N / T; without windows, by the mean of what the test read."""
        if self.windows:
            return self.samples / self.wall_s
        return 1 / statistics.fmean(self.read_by_test) if self.read_by_test else None

    @property
    def no_split(self) -> str | None:
        """Why waiting and computing cannot be told apart, one clause; None: they can, or there are no windows."""
        return split_refusal(self.summary)

    @property
    def stall_s(self) -> float | None:
        """Seconds of all windows; None where a window does not know it."""
        return _sum_of_known([window.stall_s for window in self.windows])

    @property
    def compute_s(self) -> float | None:
        """Seconds of all windows; None where a window does not know it."""
        return _sum_of_known([window.compute_s for window in self.windows])

    @property
    def compute_fraction(self) -> float | None:
        """Share of the time that was not stall: 1 - sum(stall) / T."""
        return None if self.stall_s is None else 1 - self.stall_s / self.wall_s

    @property
    def compute_throughput(self) -> float | None:
        """Samples/s while computing: N / sum(compute time), measured apart from the other two."""
        return self.samples / self.compute_s if self.compute_s else None

    @property
    def identity_gap(self) -> float | None:
        """|effective - compute x fraction| / effective: how far the three numbers disagree."""
        effective, compute, fraction = self.effective_throughput, self.compute_throughput, self.compute_fraction
        if effective is None or compute is None or fraction is None:
            return None
        return abs(effective - compute * fraction) / effective

    @property
    def seconds_per_sample(self) -> tuple[float, ...]:
        """One value a window: what pytest-benchmark is given as rounds."""
        return tuple(w.seconds_per_sample for w in self.windows) or self.read_by_test

    @property
    def spread(self) -> float | None:
        """Standard deviation over mean of the windows' seconds per sample; *within* this job, not between jobs."""
        if len(self.seconds_per_sample) < 2:
            return None
        return statistics.stdev(self.seconds_per_sample) / statistics.fmean(self.seconds_per_sample)


LONGEST_REASON = 200  # characters: it stands in each line of the history


def split_refusal(summary: Mapping[str, object]) -> str | None:
    """Why a job's summary has neither stall nor compute time: the clause of its `no_split`; None if there is none."""
    reason = summary.get("no_split")
    if not isinstance(reason, str):
        return None
    plain = "".join(letter if letter.isprintable() else "?" for letter in " ".join(reason.split()))
    if len(plain) > LONGEST_REASON:
        plain = f"{plain[: LONGEST_REASON - 1]}…"
    return plain or None


def _sum_of_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if known and len(known) == len(values) else None


# --- what goes wrong -------------------------------------------------------------------------------------------------


class BenchError(Exception):
    """Every error that a user sees: what, where, why, and what to type next."""


class ConfigError(BenchError):
    """Configuration that cannot be used; all of its problems at once, each `file:line: key: what`."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class RefusedError(BenchError):
    """A request that is understood and not allowed."""


class AwayError(BenchError):
    """A machine or its scheduler does not answer for now; what was asked may or may not have been done."""


class LoginNeeded(AwayError):
    """Only a person can open the connection again, by typing `command`."""

    def __init__(self, message: str, command: str) -> None:
        self.command = command
        super().__init__(message)


class NoRoom(AwayError):
    """Nothing was submitted, since others have what it needs; who asks again later may find room."""


class LogChanged(RefusedError):
    """A log does not hold what was read of it before: it was truncated or replaced while its job wrote."""


class JobError(BenchError):
    """One job that gave no good run."""

    def __init__(self, message: str, status: Status, folder: Path | None = None) -> None:
        self.status = status
        self.folder = folder
        super().__init__(message)


class MachineError(JobError):
    """The machine could not run it: ERROR."""


class WorkloadError(JobError):
    """It ran and is wrong: FAILED."""


class StillUnsupported(JobError):
    """It was tried, and it cannot run there, as its platform's file says: SKIPPED."""


class StillPending(JobError):
    """We stopped waiting for it: PENDING."""


ERRORS: Mapping[Outcome, type[JobError]] = MappingProxyType(
    {
        Outcome.ERROR: MachineError,
        Outcome.FAILED: WorkloadError,
        Outcome.SKIPPED: StillUnsupported,
        Outcome.PENDING: StillPending,
    }
)


def describe_error(error: Exception) -> str:
    """What an error says, with the command to type if it needs one."""
    if isinstance(error, LoginNeeded) and error.command not in str(error):
        return f"{error}; type: {error.command}"
    if isinstance(error, BenchError):
        return str(error)
    if isinstance(error, OSError):
        place = f": {error.filename}" if error.filename else ""
        return f"cannot be read or written: {error.strerror or error}{place}"
    return f"{type(error).__name__}: {error} (a mistake in the suite)"


def unseen(error: Exception) -> Status:
    """What is known of a job when that is the answer to how it is: it may have changed since."""
    reason = describe_error(error)
    return Status(State.UNKNOWN, reason, away=True, error=None if isinstance(error, BenchError) else error)
