"""What each reason that Kubernetes and Kueue give means for a job. One more line in a table teaches a new reason.

The first rule of a table that matches counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from platforms.config.cluster_values import quantity_of
from platforms.job import State
from platforms.schedulers.kubernetes.objects.fields import one_line

# How long something must last before it counts, in seconds.
IMAGE_S = 300.0  # a registry that does not answer
VOLUME_S = 300.0  # a volume that is being made, bound, or still attached to another node
NEVER_S = 300.0  # no node has such a label: an autoscaler may bring one
TAINTED_S = 1800.0  # the same while nodes have taints that the message does not name: such a node may come back
NODE_S = 300.0  # as long as Kubernetes itself tolerates a silent node
OBJECT_S = 60.0  # an object that another user may be about to create
MOMENT_S = 20.0  # what usually turns into something clearer at once
TRIES = 3  # refusals of a pod before they are believed


@dataclass(frozen=True)
class Rule:
    """A pattern for a whole reason and a pattern for a part of its message, with the state that they mean.

    `state` counts once it has lasted `patience_s`; until then the job is `meanwhile`. `unstarted` replaces `state` if
    no container of the job has run. `cure` says what to do about it. A live `state` is no failure.
    """

    reason: str
    state: State
    message: str = ""
    patience_s: float = 0.0
    meanwhile: State = State.STARTING
    unstarted: State | None = None
    cure: str = ""

    def matches(self, reason: str, message: str) -> bool:
        return bool(re.fullmatch(self.reason, reason) and re.search(self.message, message, re.IGNORECASE))

    def finding(self, message: str, *, has_run: bool = True) -> Finding:
        """The finding that the rule makes of a reason; `message` is what a person reads."""
        state = self.state
        if not has_run and self.unstarted is not None:
            state = self.unstarted
        reason = f"{message} ({self.cure})" if self.cure else message
        return Finding(state, reason, patience_s=self.patience_s, meanwhile=self.meanwhile)


@dataclass(frozen=True)
class Finding:
    """The conclusion from one look at a part of a job.

    A failure with `patience_s` counts once it has lasted so long by the timer `timer` (else by its state's name); until
    then the job is `meanwhile`.
    """

    state: State
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    patience_s: float = 0.0
    meanwhile: State = State.STARTING
    timer: str = ""

    def with_patience(self, patience_s: float, meanwhile: State, timer: str) -> Finding:
        return replace(self, patience_s=patience_s, meanwhile=meanwhile, timer=timer)

    def after_patience(self, waited_s: Callable[[str], float]) -> Finding:
        """The finding itself or, while patience lasts, a live one. `waited_s` gives the seconds of a timer."""
        if self.state.live or self.patience_s <= 0:
            return self
        if waited_s(self.timer or self.state.name) >= self.patience_s:
            return self
        return Finding(self.meanwhile, self.reason)


def find_rule(table: Sequence[Rule], reason: str, message: str = "") -> Rule | None:
    for rule in table:
        if rule.matches(reason, message):
            return rule
    return None


def rule_of(table: Sequence[Rule], reason: str, message: str = "") -> Rule:
    """The first rule that matches, in a table whose last rule is for all other reasons."""
    return find_rule(table, reason, message) or table[-1]


def reason_and_message(reason: str, message: str) -> str:
    """`reason: message`, or the one of them that is not empty."""
    return ": ".join(part for part in (reason, message) if part)


@dataclass(frozen=True)
class QuotaRefusal:
    """A ResourceQuota refused a pod. `never`: the pod alone exceeds the quota, so that waiting does not help."""

    message: str
    never: bool


def quota_refusal(message: str) -> QuotaRefusal | None:
    """Read an API server's refusal. None if it does not say that a quota is exceeded."""
    match = re.search(r"exceeded quota: (.+?), requested: (.+?), used: (.+?), limited: (.+)", message)
    if match is None:
        return None
    name, requested, used, limited = match.groups()
    limits = _quantities(limited)
    too_large = []
    for resource, amount in _quantities(requested).items():
        if _exceeds(amount, limits.get(resource)):
            too_large.append(f"{resource}: {amount} of {limits[resource]}")
    if too_large:
        reason = f"more than quota {name} allows at all ({', '.join(too_large)}): {one_line(message)}"
        return QuotaRefusal(reason, never=True)
    reason = f"quota {name} is used up: requested {requested}, used {used}, limited {limited}"
    return QuotaRefusal(reason, never=False)


def _quantities(listed: str) -> dict[str, str]:
    """Parse `requests.nvidia.com/gpu=4,pods=1`."""
    quantities = {}
    for entry in listed.split(","):
        name, equals, value = entry.strip().partition("=")
        if equals:
            quantities[name] = value.rstrip(". ")
    return quantities


def _exceeds(amount: str, limit: str | None) -> bool:
    try:
        return limit is not None and quantity_of(amount) > quantity_of(limit)
    except ValueError:
        return False


_PULL = r"ErrImagePull|ImagePullBackOff|ImageInspectError|RegistryUnavailable|SignatureValidationFailed"
_UNREACHABLE = (
    r"connection (refused|reset)|no such host|server misbehaving|time(d )?[ -]?out|deadline exceeded|\bEOF\b|"
    r"no route to host|network is unreachable|too ?many ?requests|\b429\b|try again|"
    r"\b5\d\d (internal|bad|service|gateway|unknown|not implemented)|status:? (code )?\S*\s?5\d\d\b"
)
_WRONG_IMAGE = (
    r"not ?found|manifest unknown|name unknown|does not exist|unauthorized|\b401\b|\b403\b|forbidden|denied|"
    r"insufficient_scope|authentication required|no match for platform|no matching manifest|invalid reference"
)
_SET_USER = "name a user id other than 0: `user: 1000` under `kubernetes:`"

# state.waiting of a container
WAITING: Sequence[Rule] = (
    Rule(r"InvalidImageName|ErrImageNeverPull", State.IMAGE),
    Rule(_PULL, State.IMAGE, _UNREACHABLE, patience_s=IMAGE_S),
    Rule(_PULL, State.IMAGE, _WRONG_IMAGE),
    Rule(_PULL, State.IMAGE, patience_s=IMAGE_S),
    Rule("CreateContainerConfigError", State.NOT_STARTABLE, r"runAsNonRoot|non-root|run as root", cure=_SET_USER),
    Rule("CreateContainerConfigError", State.SECRET, r"cache|time(d )?out", patience_s=OBJECT_S),
    Rule("CreateContainerConfigError", State.SECRET, r"secret|config ?map|couldn't find key|non-existent"),
    Rule("CreateContainerConfigError", State.VOLUME, r"subPath|hostPath|volume", patience_s=OBJECT_S),
    Rule("CreateContainerConfigError", State.NOT_STARTABLE),
    Rule("CreateContainerError", State.NOT_STARTABLE, rf"{_UNREACHABLE}|is reserved", patience_s=VOLUME_S),
    Rule("CreateContainerError", State.NOT_STARTABLE),
    Rule(r"RunContainerError|\w*HookError|\w*SandboxError", State.NOT_STARTABLE, patience_s=MOMENT_S),
)

# state.terminated of a container. It counts before the exit code, which is 0 if only a child was killed for memory
TERMINATED: Sequence[Rule] = (
    Rule("OOMKilled", State.OUT_OF_MEMORY),
    Rule(r"StartError|ContainerCannotRun|RunContainerError", State.NOT_STARTABLE),
    Rule("ContainerStatusUnknown", State.LOST),
)

# status.reason of a pod that failed. A pod that overflows its own volume or storage limit is the workload's fault: the
# node had enough of everything. It is out of memory only if the volume lies in memory (exits.py).
POD: Sequence[Rule] = (
    Rule("DeadlineExceeded", State.TIME_LIMIT, unstarted=State.START_DEADLINE),
    Rule("Evicted", State.SIGNALLED, r"EmptyDir volume|ephemeral.storage limit|ephemeral local storage usage"),
    Rule("Evicted", State.EVICTED),
    Rule(r"Preempting|Preempted", State.PREEMPTED),
    Rule(r"NodeLost|NodeShutdown|Shutdown|Terminated", State.NODE_LOST),
    # the kubelet refused the pod
    Rule(r"OutOf.+|NodeAffinity|UnexpectedAdmissionError|TopologyAffinityError|\w*(Forbidden|Unsupported|NotSupported)|"
         r"AppArmor|InvalidNodeInfo|PodOS\w+|VolumeAttachmentLimitExceeded", State.NOT_STARTABLE),
)  # fmt: skip

# Conditions DisruptionTarget, and TerminationTarget of Kueue, of a pod that was ended from outside
DISRUPTED: Sequence[Rule] = (
    Rule(r"PreemptionBy(Kube)?Scheduler", State.PREEMPTED),
    Rule("EvictionByEvictionAPI", State.EVICTED),
    Rule("DeletionByTaintManager", State.EVICTED),
    Rule("DeletionByPodGC", State.NODE_LOST),
    Rule("TerminationByKubelet", State.NODE_LOST, r"shutdown"),
    Rule("StoppedByKueue", State.TIME_LIMIT, r"maximum execution time", unstarted=State.START_DEADLINE),
    Rule("StoppedByKueue", State.START_DEADLINE, r"PodsReady"),
    Rule("StoppedByKueue", State.PREEMPTED),
    Rule(r".*", State.EVICTED),
)

# Events of pods that vanished before their end was seen
VANISHED: Sequence[Rule] = (
    Rule("Preempted", State.PREEMPTED),
    Rule(r"Evicted|TaintManagerEviction", State.EVICTED),
)

# PodScheduled=False, if the message is about the pod as a whole (wait_reasons.py reads what it says of each node)
UNSCHEDULABLE: Sequence[Rule] = (
    Rule(r".*", State.VOLUME, r'persistentvolumeclaim "[^"]*" not found'),
    Rule(r".*", State.VOLUME, r"unbound immediate PersistentVolumeClaims|persistentvolumeclaim .* being deleted|"
         r"non-existent persistentvolume", patience_s=VOLUME_S, meanwhile=State.QUEUED),
)  # fmt: skip

# Events of a pod whose containers are being created
MOUNTS: Sequence[Rule] = (
    Rule(r"FailedMount|FailedMapVolume", State.SECRET, r"(secret|config ?map) .*not found|non-existent \w+ key",
         patience_s=OBJECT_S),
    Rule(r"Failed(Mount|MapVolume|AttachVolume)", State.VOLUME, r"hostPath type check failed|claim .*not found",
         patience_s=OBJECT_S),
    Rule(r"Failed(Mount|MapVolume|AttachVolume)", State.VOLUME, patience_s=VOLUME_S),
    Rule(r"FailedCreatePodSandBox|FailedPodSandBoxStatus", State.NOT_STARTABLE, patience_s=VOLUME_S),
)  # fmt: skip

# Events of a controller that cannot create its pods (quota_refusal reads those about quotas)
REFUSED: Sequence[Rule] = (
    Rule(r".*", State.QUEUED, r"exceeded quota|failed calling webhook|object has been modified|etcdserver|"
         rf"{_UNREACHABLE}"),
    Rule(r".*", State.SUBMIT_REFUSED, r"violates PodSecurity|denied|forbidden|is invalid|service ?account|must specify|"
         r"no PriorityClass|security context constraint"),
    Rule(r".*", State.QUEUED),
)  # fmt: skip

# The reason for its failure that a job's own object gives, if it says more than its pods
KIND: Sequence[Rule] = (
    Rule(r"\w*DeadlineExceeded", State.TIME_LIMIT, unstarted=State.START_DEADLINE),
    Rule(r".*", State.TIME_LIMIT, r"active longer than specified deadline", unstarted=State.START_DEADLINE),
)

# Kueue: condition QuotaReserved=False of a Workload. Kueue before 0.19 says `Pending` and `Inadmissible`.
ADMISSION: Sequence[Rule] = (
    Rule(r"Misconfigured|Inadmissible", State.QUEUED, r"is inactive|is stopped"),
    Rule("Misconfigured", State.NEVER_ADMISSIBLE),
    Rule(r".*", State.NEVER_ADMISSIBLE, r"(LocalQueue|ClusterQueue) \S* ?doesn't exist"),
    Rule("ExceedsMaxQuota", State.NEVER_ADMISSIBLE),
    Rule(r".*", State.QUEUED, r"insufficient unused quota"),
    Rule(r"Pending|Inadmissible|NoMatchingFlavor", State.NEVER_ADMISSIBLE, r"> maximum capacity"),
    Rule("NoMatchingFlavor", State.NEVER_ADMISSIBLE, patience_s=NEVER_S, meanwhile=State.QUEUED),
    Rule(r".*", State.NEVER_ADMISSIBLE, r"unavailable in ClusterQueue", patience_s=NEVER_S, meanwhile=State.QUEUED),
    Rule("Deactivated", State.CANCELLED),
    Rule(r".*", State.QUEUED),
)

# Kueue: condition Evicted=True. A live `unstarted` means that the job goes back to its queue if nothing of it has run.
EVICTED: Sequence[Rule] = (
    Rule(r"\w*MaximumExecutionTimeExceeded", State.TIME_LIMIT, unstarted=State.START_DEADLINE),
    Rule(r".*", State.TIME_LIMIT, r"maximum execution time", unstarted=State.START_DEADLINE),
    Rule("Preempted", State.PREEMPTED, unstarted=State.QUEUED),
    Rule("PodsReadyTimeout", State.START_DEADLINE, unstarted=State.QUEUED),
    Rule(r"(Cluster|Local)QueueStopped", State.CANCELLED, unstarted=State.QUEUED),
    Rule("NodeFailures", State.NODE_LOST, unstarted=State.QUEUED),
    Rule("DeactivatedDueToAdmissionCheck", State.NEVER_ADMISSIBLE),
    Rule("AdmissionCheck", State.PREEMPTED, unstarted=State.QUEUED),
    Rule(r"\w*RequeuingLimitExceeded", State.START_DEADLINE),
    Rule(r".*", State.START_DEADLINE, r"requeuing limit"),
    Rule(r"(Inactive)?Deactivated\w*|InactiveWorkload", State.CANCELLED),
    Rule(r".*", State.PREEMPTED, unstarted=State.QUEUED),
)
