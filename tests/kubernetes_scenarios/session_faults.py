"""What can happen to a whole session: its cluster, its login, its watches and logs break, or somebody ends it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import yaml

from platforms.job import Layout, Outcome, State, StillPending
from platforms.schedulers.kubernetes.cluster import STOP_S
from platforms.schedulers.kubernetes.status.judge import SILENT_S
from tests.kubernetes_scenarios.building_blocks import (
    FOREVER,
    NO_NODE,
    PATIENCE_S,
    POD,
    TEMPLATES,
    Play,
    container,
    cpus,
    custom_object,
    device,
    evict,
    job,
    pod,
    pod_spec,
    queued,
    take_queue_capacity,
)
from tests.kubernetes_scenarios.show import Show
from tests.kubernetes_scenarios.stage import Stage

ROOT = Path(__file__).parents[2]
LINES = 20
COUNTS = f"i=0; while [ $i -lt {LINES} ]; do echo line $i; i=$((i + 1)); sleep 0.05; done"
ALL = b"".join(b"line %d\n" % number for number in range(LINES))
HELD = f"trap 'held=' TERM; held=%d; {COUNTS.replace('; sleep', '; [ $i = 10 ] && hold; sleep')}"
HOLD = 'hold() { while [ -n "$held" ] && [ $held -gt 0 ]; do sleep 0.1; held=${held:+$((held - 1))}; done; }'
NO_KUBELET = 'Get "https://127.0.0.1:10250/containerLogs/x": dial tcp 127.0.0.1:10250: connect: connection refused'


MANY = 24
# Blocks of lines, some bytes of which are no UTF-8, and a last line without its end
MUTTERS = r"""
for block in 1 2 3 4 5 6 7 8; do
    for line in 1 2 3 4 5 6 7 8 9; do printf '%s: \377\376\r%s of %s\n' $JOB_COMPLETION_INDEX $line $block; done
    sleep 0.3
done
printf '%s: the end' $JOB_COMPLETION_INDEX
"""


def muttered(index: int) -> bytes:
    lines = (b"%d: \xff\xfe\r%d of %d\n" % (index, line, block) for block in range(1, 9) for line in range(1, 10))
    return b"".join(lines) + b"%d: the end" % index


class SessionFault(NamedTuple):
    """What happens, and what of a cluster it needs (Stage.lacks)."""

    play: Callable[[Show], None]
    needs: tuple[str, ...] = ()


def counts(show: Show, real: int = 20) -> str:
    """COUNTS, half of which comes when it may go_on(): no look is too late to see that it runs. On a real cluster it
    goes on by itself, after `real` tenths of a second."""
    return f"{HOLD}; {HELD % (real if show.real else 6000)}"


def go_on(show: Show, play: Play) -> None:
    if show.stage.fake is not None:
        show.stage.fake.components.kill(play.pods()[0]["metadata"]["name"], number=signal.SIGTERM)


def succeeds(show: Show, play: Play, log: bytes = ALL) -> None:
    """All of its log has come, once."""
    done = show.wait_for_end(play)
    assert done.status.state is State.SUCCEEDED, done.error
    assert play.log() == log, play.log()
    assert done.run is not None
    assert not done.run.problems, done.run.problems
    show.wait_until_gone(play)


def fails(show: Show, play: Play, state: State, reason: str) -> None:
    done = show.wait_for_end(play)
    assert done.status.state is state, done.error
    assert re.search(reason, done.status.reason), done.status
    show.wait_until_no_pod_is_live(play)


# --- the server ------------------------------------------------------------------------------------------------------


def lists_fail(show: Show) -> None:
    """An answer that is an error, which anybody may get once, ends nothing."""
    front = show.stage.front
    front.fault("GET", r"/pods\?labelSelector", code=500)
    front.fault("GET", r"/jobs\?labelSelector", code=429, retry_after=1)
    front.fault("GET", r"/jobs\?.*watch", code=503)
    front.fault("GET", r"/pods\?.*watch", reset=True)
    front.fault("DELETE", "/jobs/", code=504)
    good, bad = show.shell("good", COUNTS), show.shell("bad", "exit 3")
    succeeds(show, good)
    fails(show, bad, State.EXITED, "exit code 3")


def server_restarts(show: Show) -> None:
    play = show.wait_until_running(show.shell("restart", counts(show)), 5)
    show.stage.front.down()
    time.sleep(0.5)
    show.stage.front.up()
    go_on(show, play)
    succeeds(show, play)


def history_is_lost(show: Show) -> None:
    """Watches cannot go on where they were."""
    play = show.wait_until_running(show.shell("compacted", counts(show)), 5)
    show.stage.front.fault("GET", "watch=", 3, code=410)
    if show.stage.fake:
        show.stage.fake.compact(running=True)
    show.stage.front.down()
    show.stage.front.up()
    go_on(show, play)
    succeeds(show, play)


def token_is_renewed(show: Show) -> None:
    """The old one is not good any more, and the kubeconfig has the new one."""
    play = show.wait_until_running(show.shell("renewed", counts(show)), 5)
    show.stage.front.revoke_token()
    show.stage.front.renew_token()
    show.stage.front.down()
    show.stage.front.up()
    go_on(show, play)
    succeeds(show, play)


def token_is_revoked(show: Show) -> None:
    """Nobody but a person can help: the job goes on, the session tells what to type, and the next one collects it."""
    play = show.wait_until_running(show.shell("revoked", counts(show)), 5)
    show.stage.front.revoke_token()
    show.stage.front.down()
    show.stage.front.up()
    show.runner.wait(play.job, show.tick, deadline=show.clock() + show.limit_s)
    left = play.job.error
    assert isinstance(left, StillPending), play.job.status
    assert play.job.status.state.outcome is Outcome.PENDING
    assert re.search(r"kubectl .*auth whoami", str(left)), left
    show.stage.front.renew_token()
    go_on(show, play)
    assert another_process(show, "collects", "revoked") == 0
    show.wait_until_gone(play)


def again(show: Show) -> Show:
    """Another session with the same run id."""
    return Show(show.stage, show.runner.runs, show.run_id.rpartition("-")[0])


def little_is_allowed(show: Show) -> None:
    """Events and nodes are not ours to see: less is explained, and everything ends as it must."""
    said = '{0} is forbidden: User "system:serviceaccount:proj:ci" cannot list resource "{0}" in API group ""'
    for kind in ("events", "nodes"):
        show.stage.front.fault("GET", rf"/{kind}\b", None, code=403, message=said.format(kind))
    never = container("true", image="bench.local/none:1", imagePullPolicy="Never")
    plays = [show.shell("good", "echo done"), show.shell("bad", "exit 3"), show.add("image", job(never))]
    limit_s = show.stage.limit_s(10)
    waits = show.add("waits", {**job(container("true"), pods=NO_NODE), "start_limit_s": limit_s})
    succeeds(show, plays[0], b"done\n")
    fails(show, plays[1], State.EXITED, "exit code 3")
    fails(show, plays[2], State.IMAGE, "is not present")
    fails(show, waits, State.START_DEADLINE, "didn't match")


def explanations_fail(show: Show) -> None:
    """What only says why something waits is nothing that a job that runs is ended for."""
    show.stage.front.fault("GET", r"/events\b", None, code=500, message="conversion webhook failed: connection refused")
    good = show.wait_until_running(show.shell("explained", counts(show, 300)))  # each look takes seconds
    never = show.add("unexplained", job(container("true", image="bench.local/none:1", imagePullPolicy="Never")))
    states = [good.job.status.state]
    show.until(lambda: states.append(good.job.status.state) or never.job.done, "the other one ends")
    assert State.UNKNOWN not in states
    fails(show, never, State.IMAGE, "is not present")
    go_on(show, good)
    succeeds(show, good)


def one_cannot_be_stopped(show: Show) -> None:
    """It has ended with its own cause, and tells of the device that it may still hold; the other one goes on."""
    good = show.wait_until_running(show.shell("unharmed", f"{counts(show)}; echo end"))
    never = show.add("unstopped", job(container("true", image="bench.local/none:1", imagePullPolicy="Never")))
    for method, path in (("PATCH", "pods"), ("DELETE", "(pods|jobs)")):
        show.stage.front.fault(method, f"/{path}/{never.name}", None, code=403, message="not yours")
    show.until(lambda: never.status_matches("is being stopped: .*not yours"), "somebody tries to stop it")
    assert good.runs or show.real, good.job.status
    never.clock.skipped_s += STOP_S
    done = show.wait_for_end(never)
    assert done.status.state is State.IMAGE, done.error
    said = rf"is not present.*could not be stopped: .*not yours: it may still hold a device: kubectl .*/{never.name}$"
    assert re.search(said, done.status.reason), done.status
    show.stage.front.clear_faults()
    show.stage.admin.delete("jobs", never.name)
    go_on(show, good)
    succeeds(show, good, ALL + b"end\n")


def few_requests(show: Show) -> None:
    """Waiting asks nothing: a job that takes its time costs no more than one that does not."""
    before, began_s = len(show.stage.front.requests), time.monotonic()
    succeeds(show, show.shell("long", "sleep 2; echo done"), b"done\n")
    asked = Counter(_kind(each) for each in show.stage.front.requests[before:])
    assert asked["POST"] == asked["DELETE"] == 1, asked
    took_s = time.monotonic() - began_s
    assert asked["GET"] <= 14 + took_s, (asked, took_s)
    assert asked["watch"] <= 8, asked
    assert asked["log"] <= 4, asked


def _kind(request: Any) -> str:
    return "watch" if request.watches else "log" if request.path.endswith("/log") else request.method


# --- logs and nodes --------------------------------------------------------------------------------------------------


def logs_break(show: Show) -> None:
    """They end without a word, in the middle of a line, and cannot be had for a while."""
    front = show.stage.front
    front.fault("GET", "/log.*follow", cut_after=200, clean=True)
    front.fault("GET", "/log", 2, code=500, message=NO_KUBELET)
    front.fault("GET", "/log.*follow", cut_after=333)
    front.fault("GET", "/log", reset=True)
    front.fault("GET", "/log", code=429, retry_after=1)
    play = show.shell("logs", COUNTS)
    succeeds(show, play)


def many_pods(show: Show) -> None:
    """Two dozen at once, and streams that break: no line is lost or comes twice, whatever its bytes are."""
    for number in range(MANY):
        show.stage.front.fault("GET", "/log.*follow", cut_after=97 * (number + 1), clean=number % 2 == 0)
    small = {"requests": {"cpu": "10m", "memory": "16Mi"}}
    six = {"completions": 6, "parallelism": 6, "completionMode": "Indexed"}
    made = job(container(MUTTERS, resources=small), **six)
    plays = [show.add(f"many-{number}", made) for number in range(MANY // 6)]
    expected = [muttered(index) for index in range(6)]
    for play in plays:
        done = show.wait_for_end(play)
        assert done.status.state is State.SUCCEEDED, done.error
        assert done.run is not None
        assert not done.run.problems, done.run.problems
        assert sorted(path.read_bytes() for path in (done.folder / "logs").glob("*.log")) == expected
        lines = [line for text in expected for line in text.splitlines()]
        assert sorted(play.log().splitlines()) == sorted(lines)


def kubelet_is_away(show: Show) -> None:
    """What runs goes on."""
    assert show.stage.fake is not None
    play = show.wait_until_running(show.shell("kubelet", counts(show)), 5)
    show.stage.fake.kubelet_down()
    time.sleep(0.7)
    show.stage.fake.kubelet_up()
    go_on(show, play)
    succeeds(show, play)


def node_is_lost(show: Show) -> None:
    """Nobody can say what becomes of the pod, and after a while nobody waits for that."""
    fake = show.stage.fake
    assert fake is not None
    fake.node("node-2", labels={"bench": "doomed"})
    made = job(container(f"echo begun; {FOREVER}"), pods={"nodeSelector": {"bench": "doomed"}})
    play = show.wait_until_running(show.add("lost", made))
    fake.lose_node("node-2")
    try:
        show.until(
            lambda: play.job.status.state is State.UNKNOWN and play.status_matches("node node-2"), "it is noticed"
        )
        play.clock.skipped_s += PATIENCE_S
        show.until(lambda: play.job.done or play.status_matches("is being stopped"), "it is believed")
        play.clock.skipped_s += PATIENCE_S  # nothing there can be stopped
        show.until(lambda: play.job.ended_at is not None, "nobody waits for its end any more")
        show.clock.skipped_s += PATIENCE_S  # nor for its log
        done = show.wait_for_end(play)
        assert (done.status.state, done.status.nodes) == (State.NODE_LOST, ("node-2",)), done.error
        assert done.run is not None
        assert "log could not be read to its end" in " ".join(done.run.problems), done.run.problems
    finally:
        fake.kubelet_up("node-2")
        fake.components.cordon("node-2")
    show.wait_until_no_pod_is_live(play)


# --- the session -----------------------------------------------------------------------------------------------------


def time_is_up(show: Show) -> None:
    """Where the cluster does not end it in time, we do."""
    made = {**pod(container(f"echo begun; {FOREVER}"), activeDeadlineSeconds=36000), "time_limit_s": 1.0}
    play = show.wait_until_running(show.add("endless", made))
    show.clock.skipped_s += 62.0
    fails(show, play, State.TIME_LIMIT, "longer than its time limit")
    show.wait_until_gone(play)


def begun_again(show: Show) -> None:
    """What its node evicted is tried once more, rather on another node."""
    platform = show.platform("again").model_copy(update={"retries": 1})
    first = show.spec("again", platform, {}).name
    script = f'[ "$HPC_ML_BENCH_JOB" = {first} ] || exit 0; echo begun; {FOREVER}'
    play = show.wait_until_running(show.add("again", {"arguments": ("sh", "-c", script)}, platform))
    (node,) = {each["spec"]["nodeName"] for each in play.pods()}
    evict(play)
    last = show.runner.wait(play.job, deadline=show.clock() + show.limit_s)
    assert last.result().warnings == (f"attempt 1 ended as evicted by the node on {node}",)
    assert last.job_id != play.job.job_id
    pod_of = next(each for each in yaml.safe_load_all(last.text) if each["kind"] == "Job")["spec"]["template"]["spec"]
    (wish,) = pod_of["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert wish["preference"]["matchFields"][0]["values"] == [node]


def nothing_controls_it(show: Show) -> None:
    """A kind that the cluster knows, and whose operator is dead."""
    spec = {"template": {"metadata": {}, "spec": pod_spec(container("true"))}}
    made = custom_object("bench.local", "v1", "Orphan", spec)(show.stage)
    play = show.add("orphan", made, show.platform("orphan"))
    show.until(lambda: play.status_matches("^it has no pod yet$"), "it waits")
    play.clock.skipped_s += SILENT_S + 1
    said = r"no event after 120 s: the controller of Orphan \(bench.local/v1\) does not seem to run$"
    show.until(lambda: play.status_matches(said), "it is said why")
    assert play.job.status.state is State.QUEUED


def half_a_place(show: Show) -> None:
    """One of two pods that are to meet has no node: the other gives its device back, and no program has failed."""
    name = device(show.stage, "half")
    show.stage.device(name, 1)
    limit_s = show.stage.limit_s(10)
    platform = show.platform("half", resource=name, pod_start_limit=f"{limit_s}s")
    meets = {"layout": Layout(2, 1, "gpu"), "launcher": "torchrun", "arguments": ("echo", "met")}
    play = show.add("half", meets, platform)
    fails(show, play, State.START_DEADLINE, "start limit|pod 1 of 2")
    assert b"pod 1 of 2 does not run after %d s" % limit_s in play.log(), play.log()
    assert b"met" not in play.log()


def never_its_turn(show: Show) -> None:
    """Kueue keeps it suspended until its start limit ends: nothing of it is left that could start later."""
    made = queued(cpus(8))(show.stage)
    if show.real:
        take_queue_capacity(show.stage, "hoarder-2")
    play = show.add("waits", made, recording="kueue-later")
    show.until(lambda: play.status_matches("insufficient unused quota"), "Kueue says why it waits")
    show.clock.skipped_s += 901.0
    fails(show, play, State.START_DEADLINE, "start limit of 900 s: .*insufficient unused quota")
    show.wait_until_gone(play)


def too_late(show: Show) -> None:
    """Nobody is there any more when the cluster would start it at last."""
    manifest = yaml.safe_load((TEMPLATES / "job.yaml").read_text())
    manifest["spec"]["suspend"] = True
    late = {"arguments": ("sh", "-c", "echo never"), "manifest": manifest, "start_limit_s": 5.0}
    play = show.add("late", late)
    show.until(lambda: play.job.submission, "it is submitted")
    time.sleep(show.stage.limit_s(6) + 0.5)  # a node's clock may be another
    show.stage.admin.patch("jobs", play.name, {"spec": {"suspend": False}})
    show.wait_idle_until(lambda: [each["status"].get("phase") for each in play.pods()] == ["Failed"], "it has ended")
    other = again(show)
    found = other.add("late", late)
    fails(other, found, State.START_DEADLINE, "its start limit had passed")
    assert found.job.status.exit_code == 75
    assert b"never" not in found.log()


def cancelled(show: Show) -> None:
    """Whatever they do, they are gone when it returns."""
    deaf = "trap '' TERM; echo deaf; while :; do sleep 0.2; done"
    polite = "trap 'exit 1' TERM; echo begun; sleep 600 & wait"
    plays = [
        show.shell("one", polite),
        show.add("pod", {"arguments": ("sh", "-c", polite), "manifest": POD}),
        show.add("deaf", job(container(deaf), pods={"terminationGracePeriodSeconds": 1})),
        show.add("several", job(container(f"echo begun; {FOREVER}"), completions=3, parallelism=2)),
        show.add("waits", job(container("true"), pods=NO_NODE)),
    ]
    for play in plays[:4]:
        show.wait_until_running(play)
    show.until(lambda: plays[4].status_matches("didn't match"), "the last one waits")
    assert show.runner.cancel() == []
    assert not [left for play in plays for left in show.left_objects(play)]
    ends = [play.job.status for play in plays]
    assert {each.state for each in ends} == {State.CANCELLED}, ends


def killed(show: Show) -> None:
    """A session that ends without a word loses nothing: the next one with its run id goes on where it was."""
    assert another_process(show, "is_killed", "killed") == -signal.SIGKILL
    play = show.shell("killed", counts(show))
    assert play.job.submission is not None
    assert play.log().count(b"\n") >= 5
    go_on(show, play)
    succeeds(show, play)


# --- sessions in other processes -------------------------------------------------------------------------------------


def another_process(show: Show, does: str, name: str) -> int:
    """A session with the same run id there. Its exit status."""
    stage, run_id = show.stage, show.run_id.rpartition("-")[0]
    words = ["" if show.real else "fake", stage.key, str(stage.front.kubeconfig), stage.image, str(show.runner.runs)]
    command = [sys.executable, "-m", __name__, does, name, *words, run_id]
    return subprocess.run(command, cwd=ROOT, timeout=show.limit_s, check=False).returncode


def is_killed(show: Show, name: str) -> None:
    show.wait_until_running(show.shell(name, counts(show)), 5)
    os.kill(os.getpid(), signal.SIGKILL)


def collects(show: Show, name: str) -> None:
    play = show.shell(name, counts(show))
    assert play.job.submission is not None
    done = show.wait_for_end(play)
    assert done.status.state is State.SUCCEEDED, done.error
    assert play.log() == ALL, play.log()


def main(does: str, name: str, fake: str, key: str, kubeconfig: str, image: str, runs: str, run_id: str) -> None:
    stage = SimpleNamespace(key=key, fake=fake or None, image=image, front=SimpleNamespace(kubeconfig=Path(kubeconfig)))
    show = Show(cast(Stage, stage), Path(runs), run_id)
    {"is_killed": is_killed, "collects": collects}[does](show, name)


SESSION_FAULTS: Mapping[str, SessionFault] = {
    "lists-fail": SessionFault(lists_fail),
    "server-restarts": SessionFault(server_restarts),
    "history-is-lost": SessionFault(history_is_lost),
    "token-is-renewed": SessionFault(token_is_renewed),
    "little-is-allowed": SessionFault(little_is_allowed),
    "explanations-fail": SessionFault(explanations_fail),
    "one-cannot-be-stopped": SessionFault(one_cannot_be_stopped),
    "few-requests": SessionFault(few_requests),
    "logs-break": SessionFault(logs_break),
    "many-pods": SessionFault(many_pods),
    "kubelet-is-away": SessionFault(kubelet_is_away, ("kubelet",)),
    "node-is-lost": SessionFault(node_is_lost, ("kubelet",)),
    "time-is-up": SessionFault(time_is_up),
    "begun-again": SessionFault(begun_again, ("evict",)),
    "nothing-controls-it": SessionFault(nothing_controls_it, ("kinds",)),
    "half-a-place": SessionFault(half_a_place, ("device",)),
    "never-its-turn": SessionFault(never_its_turn, ("kueue",)),
    "too-late": SessionFault(too_late),
    "cancelled": SessionFault(cancelled),
    "killed": SessionFault(killed),
    "token-is-revoked": SessionFault(token_is_revoked),  # last: for a while afterwards this process asks nothing
}

if __name__ == "__main__":
    main(*sys.argv[1:])
