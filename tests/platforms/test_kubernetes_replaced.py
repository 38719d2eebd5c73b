"""What the other pods of a Kubernetes job say of one that has ended or is gone."""

from __future__ import annotations

from platforms.job import State
from tests.platforms.kubernetes_objects import COMPLETE, LONG, ended, job, look, other, pod, running


def test_a_policy_of_success_needs_one_pod_that_has_succeeded() -> None:
    policy = {"rules": [{"succeededIndexes": "0"}]}
    never = {"spec": {"restartPolicy": "Never"}}
    root = job(COMPLETE, completions=2, parallelism=2, successPolicy=policy, template=never)
    verdict = look(root, pod(ended(0), "a"), gone_pods=[pod(running(), "b")])
    assert (verdict.status.state, verdict.status.exit_code) == (State.SUCCEEDED, 0)


def test_a_pod_may_be_replaced_in_the_second_in_which_it_ended() -> None:
    again = pod(running(), "b", creationTimestamp="2026-11-20T22:11:30Z")
    verdict = look(other("Thing"), pod(ended(3, at=30), "a"), again, waited=LONG)
    assert (verdict.status.state, verdict.stop) == (State.RUNNING, False)
