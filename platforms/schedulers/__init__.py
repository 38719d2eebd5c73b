"""What starts jobs on a platform: what every scheduler must do, what it can offer, and where each scheduler is.

`SCHEDULERS` names one `Backend` for each scheduler. A backend is light: it says what the suite must know before there
is a job, and imports nothing big until it is asked to. Its `connect` makes the `Scheduler`, which starts jobs and
follows them. Commands ask a backend what it can do; they never ask for its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self, cast

from platforms.config.scheduler_keys import SchedulerKeys
from platforms.job import ConfigError, JobSpec, RefusedError, Status, Submitted

if TYPE_CHECKING:
    from platforms.config.draft import DraftLine, DraftRequest
    from platforms.config.schema import Platform
    from platforms.rundir.retention import Leftover
    from platforms.schedulers.doctor_steps import Step, Visit

# The scheduler's name in a platform's file, and the module and the class of its Backend.
SCHEDULERS: dict[str, str] = {
    "slurm": "platforms.schedulers.slurm.backend:SlurmBackend",
    "kubernetes": "platforms.schedulers.kubernetes.backend:KubernetesBackend",
    "ssh": "platforms.schedulers.ssh:SshBackend",
    "local": "platforms.schedulers.local:LocalBackend",
}


class Scheduler(Protocol):
    """Starts jobs, follows them and ends them. Every scheduler implements this, and may inherit what has a body.

    `Backend.connect` makes one for each platform and session. A scheduler opens no connection before it needs one. One
    thread uses it at a time. Its state can be rebuilt: another process that knows a job's `Submitted` gets the same
    answers.

    Errors: every method may raise a BenchError of platforms/job.py, whose message says what failed, where, why, and
    what to type next. AwayError means that the scheduler does not answer at the moment, LoginNeeded that a person must
    log in. An OSError is one of this machine's own disk. Neither it nor any other exception, which is a bug, ends or
    cancels a job that may exist: the method is called again at the next poll. Every method has a time-out.
    """

    text_name: str
    """The name of the rendered text in the job's folder, as in `job.sh`."""

    ends_failed: bool
    """Whether `status` may end jobs that can never start, and what is left of a failed job. A session sets it to True.
    A command that only shows jobs sets it to False, so that it changes nothing."""

    log_in_folder: bool
    """Whether the job itself writes FOLDER/log.

    If it does not, the runner writes there what `read` returns.
    """

    clean_deletes: bool
    """Whether `clean` deletes what a lost result could be rebuilt from.

    Then run.json is synced to the disk before.
    """

    first_look_s: float
    """Seconds from a job's submission to the first poll.

    Later polls follow at growing intervals, up to `poll_s`.
    """

    glance_s: float
    """Seconds between two calls of `has_news` while no poll is due; math.inf if it never has news."""

    def render(self, spec: JobSpec) -> str:
        """Render the whole submission as text that people can read: a script or a manifest.

        The same spec gives the same text. Rendering uses no network and no files, and starts nothing. A job that names
        its nodes or a reservation gets exactly these, or is refused (`check_nodes` in job_spec.py).

        Raises:
            RefusedError: the platform cannot run such a job (two nodes on one machine, an unknown launcher).
            ConfigError: a value cannot be written into the text.
        """
        ...

    def lint(self, spec: JobSpec, text: str) -> Sequence[str]:
        """Check the rendered text against the platform's `policy:`. Returns a sentence for each violation.

        Uses no network.
        """
        ...

    def check(self, spec: JobSpec, text: str) -> Sequence[str]:
        """Ask the scheduler whether it would accept the rendered text, without submitting it.

        Returns a sentence for each objection; () also where no scheduler can be asked.

        Raises:
            AwayError: it does not answer.
            BenchError: it cannot be asked.
        """
        return ()

    def submit(self, spec: JobSpec, text: str, folder: Path) -> str:
        """Submit the rendered text. Returns the job's id, a word that people can type.

        Idempotent by `spec.name` and `folder`: a second submission, in this process or another, at the same time or
        after the job's end, starts no job and returns the id of the first. A process that is killed while it submits
        leaves no job, or a job that the next submission finds. The job carries its own limits, so that it ends without
        a session: `spec.time_limit_s`, and `spec.start_limit_s` from now, after which it must refuse to start.

        Args:
            spec: what was rendered.
            text: what `render` returned for it.
            folder: where the evidence of this job lies; it exists and holds the text under `text_name`.

        Raises:
            AwayError: it is not known whether there is a job. Another submission finds out.
            BenchError: the scheduler refused the job, and the message has its own words. There is no job. The status
                of a JobError says how it ended; NEVER_ADMISSIBLE if a node that it names is out of service.
        """
        ...

    def status(self, jobs: Sequence[Submitted]) -> Mapping[str, Status]:
        """Return the states of many jobs by their ids, with ONE query.

        A job is reported as ended once its end is final and its log complete, with exit code or signal and the times
        in Unix seconds. An exit code is translated by `state_of_exit(code, speaks_wire=False)`; the runner knows what
        codes such as 66 mean. A job that the scheduler does not know is LOST. If the scheduler does not answer, its
        jobs are UNKNOWN, with the reason; that is no error. So is a job of which the answer cannot be read (`unseen` in
        platforms/job.py); the others have their states.
        """
        ...

    def has_news(self, jobs: Sequence[Submitted]) -> bool:
        """Return True if something has happened to one of the jobs since the last call, so that a poll is due at once.

        It must cost the scheduler nothing. False does not mean that nothing has happened.

        Raises:
            BenchError: the jobs cannot be seen.
        """
        return False

    def watch(self, job: Submitted, told: Callable[[], None]) -> None:
        """Call `told`, on any thread, when a job that was just submitted has ended, if the machine says so by itself.

        Polls go on all the same, so whatever this raises does no harm.
        """
        return

    def read(self, job: Submitted, offset: int, known: bytes = b"") -> bytes:
        """Return the next bytes of the job's log from byte `offset` on, at most about a MiB; b"" if nothing is new.

        The log is the standard output and error of all ranks, unchanged. A log that does not exist yet is empty. If it
        still does not exist when the job has ended, the job's status says so.

        Args:
            offset: how many bytes of the log the caller has.
            known: the last of these bytes.

        Raises:
            LogChanged: the log is shorter than `offset`, or holds other bytes than `known` before it.
        """
        ...

    def gaps(self, job: Submitted) -> Sequence[str]:
        """Return a sentence for each lost part of the log. Called once `read` has returned the end of the log.

        A file has no gaps.
        """
        return ()

    def log_doubts(self, job: Submitted) -> Sequence[str]:
        """Return a sentence for each log that may lack lines though nothing shows it.

        Called after `gaps`.
        """
        return ()

    def cancel(self, jobs: Sequence[Submitted]) -> Mapping[str, str]:
        """Cancel jobs that wait or run, and wait until they are gone. A job that has ended before is no error.

        Returns the jobs that were not seen to be gone, by id: what may still run, and how to end it by hand.
        """
        ...

    def clean(self, job: Submitted) -> None:
        """After a success: delete what the job still holds at the scheduler.

        The job's folder stays.
        """
        ...

    def hints(self, job: Submitted) -> tuple[str, ...]:
        """Return shell commands that a person can copy: to inspect the job, and to delete what is left of it."""
        ...


@dataclass(frozen=True)
class Maintenance:
    """A time, in Unix seconds, in which a scheduler starts none of a platform's jobs.

    `name` is the scheduler's.
    """

    name: str
    begins_s: float
    ends_s: float


@dataclass(frozen=True)
class NodeState:
    """A node, as its scheduler sees it now.

    Attributes:
        name: as `JobSpec.nodes` takes it.
        state: idle, busy, reserved (for other jobs), booting, drained (an administrator took it out) or down.
        reason: the scheduler's own words, with who took it out and since when; "" if it gives none.
    """

    name: str
    state: Literal["idle", "busy", "reserved", "booting", "drained", "down"]
    reason: str = ""

    @property
    def out_of_service(self) -> bool:
        """Whether it starts no job until a person does something."""
        return self.state in ("drained", "down")


@dataclass(frozen=True)
class LiveJobs:
    """How a scheduler says which of its jobs live.

    Attributes:
        script: shell lines, run in the work_dir. They print `id|state|text` for each job of ours, with its name or
            folder in the text, then `asked CODE` with the exit code of the question. Nothing is removed if the code is
            not 0.
        lives: whether a job in this state lives.
    """

    script: str
    lives: Callable[[str], bool] = bool


class Leftovers(Protocol):
    """What ended jobs have left on one platform. It is used in a with statement, which closes the connection.

    Methods raise AwayError when the platform does not answer, and RefusedError when something cannot be listed.
    """

    @property
    def where(self) -> str:
        """What messages call the place."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: object) -> None: ...

    def find(self) -> list[Leftover]:
        """What all our jobs have left, each with its job's name as `owner`; what a live job needs says why it stays."""
        ...

    def remove(self, leftovers: Sequence[Leftover]) -> list[str]:
        """Remove what `find` has listed just before.

        Returns a sentence for each leftover that is not gone.
        """
        ...


class Backend:
    """What the suite must know of a scheduler before there is a job. Subclass it and name the class in SCHEDULERS.

    A subclass must write `connect`. Everything else is optional, with a default that suits a batch system whose
    commands run on a login node.
    """

    file_keys: ClassVar[SchedulerKeys] = SchedulerKeys()
    """What a platform's file may say with this scheduler."""

    def connect(self, platform: Platform) -> Scheduler:
        """The scheduler of one platform. Nothing is connected yet."""
        raise NotImplementedError(f"{type(self).__name__} must say how its scheduler is made")

    # --- the jobs of a platform --------------------------------------------------------------------------------------

    only_jobs_see_their_machine: ClassVar[bool] = True
    """Whether only a job can say which Python, packages and devices jobs find.

    False if commands run where jobs run.
    """

    commands_see_data: ClassVar[bool] = True
    """Whether commands on the login node can see the data sets. If not, only jobs can."""

    is_one_machine: ClassVar[bool] = False
    """Whether all jobs of a platform run on the same machine."""

    packs_nodes: ClassVar[bool] = False
    """Whether several jobs of a session may run on one node at the same time, and no key of the file prevents it."""

    takes_manifests: ClassVar[bool] = False
    """Whether a test may bring its own manifest."""

    device_keys: ClassVar[str] = "`python:`, `modules:`"
    """The keys of the platform's file that decide whether a job sees its devices, as doctor names them."""

    def job_python(self, platform: Platform) -> str:
        """The Python of the jobs; "auto" if it is found out where the job runs."""
        return platform.python

    def image_key(self, platform: Platform) -> tuple[str, str] | None:
        """The key of the file that names the image in which jobs run, and the image.

        None if there is no image.
        """
        return None if platform.container is None else ("container", platform.container.image)

    def is_present(self, platform: Platform) -> bool:
        """Whether the platform may be used without being enabled, since this machine has it."""
        return False

    def maintenance(self, platform: Platform, reservation: str | None = None) -> Maintenance | None:
        """The maintenance of the whole platform that is under way, else the next one. None: the scheduler knows none.

        That of `reservation`, which the jobs use in place of the platform's own, does not count. It asks the scheduler
        once. Raises BenchError.
        """
        return None

    def nodes(self, platform: Platform) -> Sequence[NodeState]:
        """The nodes on which the platform's jobs may run, by name, in order. It sends one query.

        Raises:
            AwayError: the scheduler does not answer.
            RefusedError: the nodes cannot be listed.
        """
        raise RefusedError(f"{platform.name}: the scheduler {platform.scheduler} cannot list its nodes")

    def nodes_of_job(self, platform: Platform, job_id: str) -> tuple[str, ...]:
        """The nodes of a job, of any user, that runs or has run; () while it has none.

        Args:
            platform: the one whose scheduler knows the job.
            job_id: the scheduler's own id, as its commands print it.

        Raises:
            AwayError: the scheduler does not answer.
            RefusedError: it knows no such job, or does not say.
        """
        raise RefusedError(f"{platform.name}: the scheduler {platform.scheduler} cannot say where a job has run")

    def start_of_job(self, platform: Platform, job_id: str) -> float | None:
        """When a job of any user started, in Unix seconds; None if it has not, or the scheduler does not say.

        The arguments and errors are those of `nodes_of_job`.
        """
        return None

    def drain_command(self, node: str, reason: str) -> str | None:
        """What an administrator types to take a node out of service.

        None where there is no such command.
        """
        return None

    def lint_file(self, platform: Platform, file: Path) -> list[str]:
        """What the site's rules have against a manifest in a file, a line each.

        Raises RefusedError.
        """
        raise RefusedError(f"{platform.name} has no manifests: its scheduler is {platform.scheduler}")

    # --- init --------------------------------------------------------------------------------------------------------

    init_options: ClassVar[Sequence[str]] = ("ssh", "transport", "ssh_config")
    """The options of `init` that this scheduler takes."""

    def draft(self, request: DraftRequest) -> Sequence[DraftLine]:
        """The lines of a platform's file, from what the machine says of itself.

        Optional. Raises BenchError.
        """
        raise NotImplementedError(f"{type(self).__name__} drafts no files")

    @property
    def drafts(self) -> bool:
        """Whether `init` can ask this scheduler."""
        return type(self).draft is not Backend.draft

    # --- doctor ------------------------------------------------------------------------------------------------------

    def doctor_steps(self, visit: Visit) -> Sequence[Step]:
        """What doctor looks at first, in order: how the platform is reached, and what it needs there."""
        from platforms.schedulers import doctor_steps

        reach = ("transport", doctor_steps.transport)
        return (reach, ("work_dir", doctor_steps.work_dir)) if visit.platform.work_dir else (reach,)

    def doctor_trials(self, visit: Visit) -> Sequence[Step]:
        """How doctor asks the scheduler itself whether it would take the jobs, once they keep to the site's rules."""
        return ()

    def platform_for_doctor(self, platform: Platform) -> Platform:
        """The platform as the job of `doctor --node` needs it."""
        return platform

    # --- prepare -----------------------------------------------------------------------------------------------------

    def make_storage(self, platform: Platform) -> Iterable[str]:
        """Make what must be there before data sets are, such as volumes.

        Returns a line for each thing that is made.
        """
        return ()

    # --- prune -------------------------------------------------------------------------------------------------------

    def live_jobs(self) -> LiveJobs | None:
        """How the scheduler says which of its jobs live.

        None: it cannot, and then `prune` removes nothing there.
        """
        return None

    def leftovers(self, platform: Platform) -> Leftovers:
        """What ended jobs have left on a platform; by default in its work_dir.

        Raises BenchError.
        """
        from platforms.schedulers.work_dir import WorkDir

        return WorkDir(platform, self.live_jobs())


def backend_named(name: str) -> Backend:
    """The backend of a scheduler. Raises KeyError if there is no such scheduler."""
    module, _, class_name = SCHEDULERS[name].partition(":")
    return cast("Backend", getattr(import_module(module), class_name)())


def backend_of(platform: Platform) -> Backend:
    """The backend of a platform's scheduler. Raises ConfigError if there is no such scheduler."""
    if platform.scheduler not in SCHEDULERS:
        names = ", ".join(sorted(SCHEDULERS))
        raise ConfigError([f"{platform.source}: scheduler: there is no {platform.scheduler!r}; there are: {names}"])
    return backend_named(platform.scheduler)


class _FileKeys(Mapping[str, SchedulerKeys]):
    """Reads `file_keys` of a backend when they are asked for, so that only the schedulers in use are imported."""

    def __getitem__(self, name: str) -> SchedulerKeys:
        return backend_named(name).file_keys

    def __iter__(self) -> Iterator[str]:
        return iter(SCHEDULERS)

    def __len__(self) -> int:
        return len(SCHEDULERS)


FILE_KEYS: Mapping[str, SchedulerKeys] = _FileKeys()


def connect(platform: Platform, *, only_looks: bool = False) -> Scheduler:
    """The scheduler of a platform; with `only_looks`, asking it ends no job.

    Raises ConfigError if there is none.
    """
    scheduler = backend_of(platform).connect(platform)
    scheduler.ends_failed = not only_looks
    return scheduler
