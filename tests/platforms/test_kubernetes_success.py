"""When a Kubernetes job that reports success has succeeded, although not all of its pods are seen."""

from __future__ import annotations

from platforms.job import State
from tests.platforms.kubernetes_objects import COMPLETE, ended, job, look, pod, running


def test_a_policy_of_success_needs_one_pod_that_has_succeeded() -> None:
    policy = {"rules": [{"succeededIndexes": "0"}]}
    never = {"spec": {"restartPolicy": "Never"}}
    root = job(COMPLETE, completions=2, parallelism=2, successPolicy=policy, template=never)
    verdict = look(root, pod(ended(0), "a"), gone_pods=[pod(running(), "b")])
    assert (verdict.status.state, verdict.status.exit_code) == (State.SUCCEEDED, 0)
