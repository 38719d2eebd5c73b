"""What each reason that Kubernetes and Kueue give means to us. One line more in a table teaches a new one; the first
line that fits counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from platforms.config.values import quantity_of
from platforms.job import State
from platforms.schedulers.kubernetes.objects.fields import one_line

# How long something must last before it counts, in seconds.
IMAGE_S = 300.0  # a registry that does not answer
VOLUME_S = 300.0  # a volume that is being made, bound, or still attached to another node
NEVER_S = 300.0  # no node has such a label: an autoscaler may bring one
TAINTED_S = 1800.0  # the same, where nodes have taints and nobody says which: one may be about to come back
NODE_S = 300.0  # as long as Kubernetes itself tolerates a silent node
OBJECT_S = 60.0  # an object that somebody may be about to make
MOMENT_S = 20.0  # what usually turns into something clearer at once
TRIES = 3  # refusals of a pod before they are believed


@dataclass(frozen=True)
class Rule:
    """A reason, as a pattern for all of it, and a pattern somewhere in its message -> what it means.

    `state` counts once it has lasted `patience_s`; the job is `meanwhile` until then. `unstarted` stands in place of
    `state` where nothing of the job had run. `cure` is what to do about it. A live `state` is no failure at all.
    """

    reason: str
    state: State
    message: str = ""
    patience_s: float = 0.0
    meanwhile: State = State.STARTING
    unstarted: State | None = None
    cure: str = ""

    def fits(self, reason: str, message: str) -> bool:
        return bool(re.fullmatch(self.reason, reason) and re.search(self.message, message, re.IGNORECASE))


@dataclass(frozen=True)
class Finding:
    """What one look at something says of the job. `name` is what it is waited for by, where it needs patience."""

    state: State
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    patience_s: float = 0.0
    meanwhile: State = State.STARTING
    name: str = ""

    def settled(self, waited: Callable[[str], float]) -> Finding:
        """As it is, or, while patience lasts, no failure yet."""
        if self.state.live or self.patience_s <= 0 or waited(self.name or self.state.name) >= self.patience_s:
            return self
        return Finding(self.meanwhile, self.reason)


def find(table: Sequence[Rule], reason: str, message: str = "") -> Rule | None:
    """The first rule that fits."""
    return next((rule for rule in table if rule.fits(reason, message)), None)


def always(table: Sequence[Rule], reason: str, message: str = "") -> Rule:
    """The first rule that fits, of a table whose last one is for all the rest."""
    return find(table, reason, message) or table[-1]


def finding(rule: Rule, words: str, *, ran: bool = True) -> Finding:
    """What a rule makes of a reason, in `words`."""
    state = rule.state if ran or rule.unstarted is None else rule.unstarted
    said = f"{words} ({rule.cure})" if rule.cure else words
    return Finding(state, said, patience_s=rule.patience_s, meanwhile=rule.meanwhile)


def patiently(found: Finding, patience_s: float, meanwhile: State, name: str) -> Finding:
    """The same, when it has lasted."""
    return replace(found, patience_s=patience_s, meanwhile=meanwhile, name=name)


@dataclass(frozen=True)
class Quota:
    """A ResourceQuota that refused a pod. `never`: the pod alone is above what the quota allows at all."""

    words: str
    never: bool


def quota(message: str) -> Quota | None:
    """What an API server's refusal says of a quota; None when no quota is exceeded."""
    found = re.search(r"exceeded quota: (.+?), requested: (.+?), used: (.+?), limited: (.+)", message)
    if found is None:
        return None
    wanted, limited = _amounts(found[2]), _amounts(found[4])
    over = [f"{name}: {wanted[name]} of {limited[name]}" for name in wanted if _more(wanted[name], limited.get(name))]
    if over:
        return Quota(f"more than quota {found[1]} allows at all ({', '.join(over)}): {one_line(message)}", True)
    return Quota(f"quota {found[1]} is used up: requested {found[2]}, used {found[3]}, limited {found[4]}", False)


def _amounts(listed: str) -> dict[str, str]:
    """`requests.nvidia.com/gpu=4,pods=1`, as a mapping."""
    pairs = (entry.strip().partition("=") for entry in listed.split(","))
    return {name: value.rstrip(". ") for name, equals, value in pairs if equals}


def _more(wanted: str, limited: str | None) -> bool:
    try:
        return limited is not None and quantity_of(wanted) > quantity_of(limited)
    except ValueError:
        return False


_PULL = r"ErrImagePull|ImagePullBackOff|ImageInspectError|RegistryUnavailable|SignatureValidationFailed"
_AWAY = (
    r"connection (refused|reset)|no such host|server misbehaving|time(d )?[ -]?out|deadline exceeded|\bEOF\b|"
    r"no route to host|network is unreachable|too ?many ?requests|\b429\b|try again|"
    r"\b5\d\d (internal|bad|service|gateway|unknown|not implemented)|status:? (code )?\S*\s?5\d\d\b"
)
_WRONG_IMAGE = (
    r"not ?found|manifest unknown|name unknown|does not exist|unauthorized|\b401\b|\b403\b|forbidden|denied|"
    r"insufficient_scope|authentication required|no match for platform|no matching manifest|invalid reference"
)
_NO_USER = "name a user id other than 0: `user: 1000` under `kubernetes:`"

# state.waiting of a container
WAITING: Sequence[Rule] = (
    Rule(r"InvalidImageName|ErrImageNeverPull", State.IMAGE),
    Rule(_PULL, State.IMAGE, _AWAY, patience_s=IMAGE_S),
    Rule(_PULL, State.IMAGE, _WRONG_IMAGE),
    Rule(_PULL, State.IMAGE, patience_s=IMAGE_S),
    Rule("CreateContainerConfigError", State.NOT_STARTABLE, r"runAsNonRoot|non-root|run as root", cure=_NO_USER),
    Rule("CreateContainerConfigError", State.SECRET, r"cache|time(d )?out", patience_s=OBJECT_S),
    Rule("CreateContainerConfigError", State.SECRET, r"secret|config ?map|couldn't find key|non-existent"),
    Rule("CreateContainerConfigError", State.VOLUME, r"subPath|hostPath|volume", patience_s=OBJECT_S),
    Rule("CreateContainerConfigError", State.NOT_STARTABLE),
    Rule("CreateContainerError", State.NOT_STARTABLE, rf"{_AWAY}|is reserved", patience_s=VOLUME_S),
    Rule("CreateContainerError", State.NOT_STARTABLE),
    Rule(r"RunContainerError|\w*HookError|\w*SandboxError", State.NOT_STARTABLE, patience_s=MOMENT_S),
)

# state.terminated of a container, before its exit code is asked; a child's memory shows with exit code 0 as well
TERMINATED: Sequence[Rule] = (
    Rule("OOMKilled", State.OUT_OF_MEMORY),
    Rule(r"StartError|ContainerCannotRun|RunContainerError", State.NOT_STARTABLE),
    Rule("ContainerStatusUnknown", State.LOST),
)

# status.reason of a pod that failed. An own volume or storage limit that overflows is the workload's fault: the node
# was short of nothing, and killed it for that. It is out of memory only where the volume is memory (exits.py).
POD: Sequence[Rule] = (
    Rule("DeadlineExceeded", State.TIME_LIMIT, unstarted=State.START_DEADLINE),
    Rule("Evicted", State.SIGNALLED, r"EmptyDir volume|ephemeral.storage limit|ephemeral local storage usage"),
    Rule("Evicted", State.EVICTED),
    Rule(r"Preempting|Preempted", State.PREEMPTED),
    Rule(r"NodeLost|NodeShutdown|Shutdown|Terminated", State.NODE_LOST),
    # a kubelet that would not take it
    Rule(r"OutOf.+|NodeAffinity|UnexpectedAdmissionError|TopologyAffinityError|\w*(Forbidden|Unsupported|NotSupported)|"
         r"AppArmor|InvalidNodeInfo|PodOS\w+|VolumeAttachmentLimitExceeded", State.NOT_STARTABLE),
)  # fmt: skip

# Conditions DisruptionTarget, and TerminationTarget of Kueue, of a pod that something other than itself ended
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

# Events of pods that vanished before anybody saw how
VANISHED: Sequence[Rule] = (
    Rule("Preempted", State.PREEMPTED),
    Rule(r"Evicted|TaintManagerEviction", State.EVICTED),
)

# PodScheduled=False, where the message speaks of the pod as a whole; of nodes one by one: symptoms.py
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

# Events of a kind that cannot create its pods; of quotas: quota()
REFUSED: Sequence[Rule] = (
    Rule(r".*", State.QUEUED, rf"exceeded quota|failed calling webhook|object has been modified|etcdserver|{_AWAY}"),
    Rule(r".*", State.SUBMIT_REFUSED, r"violates PodSecurity|denied|forbidden|is invalid|service ?account|must specify|"
         r"no PriorityClass|security context constraint"),
    Rule(r".*", State.QUEUED),
)  # fmt: skip

# A kind's own reason for its failure, where it says more than its pods
KIND: Sequence[Rule] = (
    Rule(r"\w*DeadlineExceeded", State.TIME_LIMIT, unstarted=State.START_DEADLINE),
    Rule(r".*", State.TIME_LIMIT, r"active longer than specified deadline", unstarted=State.START_DEADLINE),
)

# Kueue: condition QuotaReserved=False of a Workload. `Pending` and `Inadmissible` are what Kueue before 0.19 says.
ADMISSION: Sequence[Rule] = (
    Rule(r"Misconfigured|Inadmissible", State.QUEUED, r"is inactive|is stopped"),
    Rule("Misconfigured", State.NEVER_ADMISSIBLE),
    Rule(r".*", State.NEVER_ADMISSIBLE, r"(LocalQueue|ClusterQueue) \S* ?doesn't exist"),
    Rule("ExceedsMaxQuota", State.NEVER_ADMISSIBLE),
    Rule(r".*", State.QUEUED, r"insufficient unused quota"),
    Rule(r"Pending|Inadmissible|NoMatchingFlavor", State.NEVER_ADMISSIBLE, r"> maximum capacity"),
    Rule("NoMatchingFlavor", State.NEVER_ADMISSIBLE, patience_s=NEVER_S, meanwhile=State.QUEUED),
    Rule("Deactivated", State.CANCELLED),
    Rule(r".*", State.QUEUED),
)

# Kueue: condition Evicted=True. `unstarted` live: it goes back to the queue as long as nothing of it had run.
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
