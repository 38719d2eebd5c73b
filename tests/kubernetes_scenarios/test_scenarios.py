"""Every way in which a job on Kubernetes can go, on the stand-in, or with --kubeconfig FILE on a real cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes_scenarios.building_blocks import Play, Scenario
from tests.kubernetes_scenarios.scenarios import TOGETHER
from tests.kubernetes_scenarios.session_faults import SESSION_FAULTS
from tests.kubernetes_scenarios.show import Show
from tests.kubernetes_scenarios.stage import Stage

pytestmark = [pytest.mark.live_k8s, pytest.mark.slow]

TESTS = Path(__file__).parents[1]
SESSIONS, HOUSE = "kubernetes_scenarios/test_sessions.py", "harness/test_kubernetes.py"
CREATION = "platforms/test_kubernetes_creation.py"
# What the code that was published with the paper (ReFrame, branch k8s, March 2024) did with each of these, as it was
# seen against an API server; and what shows that here each ends as it must: scenarios, troubles, tests of a file.
PAPER = {
    "S0": ("without the package kubernetes no scheduler could be loaded, not even the local one",
           "platforms/test_kubernetes_client.py::test_finding_a_context_imports_no_client"),
    "S1": ("74 LISTs for a pod of 5 s, 143 for one of 20 s, each with the kubeconfig and its login read again",
           "few-requests",
           "platforms/test_kubernetes_scale.py::test_only_create_delete_and_log_requests_grow_with_the_jobs",
           "platforms/test_kubernetes_client.py::test_a_login_program_runs_again_only_when_its_credentials_expire"),
    "S2": ("of a pod that failed a ValueError about a process was told, not the cause, and the pod stayed for ever",
           "pod-exit-3", "exit-3", "memory",
           f"{SESSIONS}::test_failed_and_unstartable_jobs_stop_no_other_job"),
    "S2+async": ("the first failure ended the session with `PASSED Ran 0/3` and leaked the pods of all others",
                 f"{SESSIONS}::test_failed_and_unstartable_jobs_stop_no_other_job", "lists-fail"),
    "S3": ("a pod that waits for ever was a ValueError in place of a time-out, and the process never ended",
           "image-404", "image-refused", "no-such-node", "start-deadline", "gated",
           f"{SESSIONS}::test_failed_and_unstartable_jobs_stop_no_other_job"),
    "S4": ("a suspended Job, as Kueue has them, was taken for a success without pods and waited for for ever",
           "suspended", "kueue", "kueue-later", "never-its-turn", "too-late"),
    "S5": ("a test's namespace and context were not handed on: its pod was made wherever the kubeconfig pointed",
           "other-namespace", "other-context",
           f"{HOUSE}::test_a_test_names_its_own_namespace_and_its_own_cluster"),
    "S6": ("an IPUJob as documented ended with KeyError 'type' before it was submitted",
           "ipu-job", "ipu-job-fails", "ipu-job-of-ours", "own-kind"),
    "S7": ("a pod that vanished (eviction, preemption, TTL) was waited for for ever, past every limit",
           "deleted-pod", "evicted-pod", "evicted", "preempted", "ttl-of-nothing", "node-is-lost", "time-is-up"),
    "S8": ("of three pods only the first one's numbers were read",
           "completions", "indexed", "two-nodes", "many-pods",
           "platforms/test_kubernetes_judge.py::test_the_last_word_is_that_of_rank_0"),
    "S9": ("a Job was failed by its first pod while it tried again, and its objects were leaked",
           "second-succeeds", "backoff-limit", "on-failure"),
    "S11": ("one answer 500 ended the whole session",
            "lists-fail", "server-restarts", "history-is-lost", "logs-break"),
    "cancel": ("Ctrl-C deleted nothing: the pod ran to its end, and the session with it",
               "cancelled", f"{SESSIONS}::test_an_interrupted_session_leaves_no_objects"),
    "killed": ("a session that was killed left its devices taken until somebody looked",
               "killed", "pod-deadline", "too-late",
               f"{SESSIONS}::test_cancel_deletes_the_leftovers_of_a_killed_session"),
    "quota": ("words of a quota that the pattern did not foresee ended the session, and amounts lost their units",
              "quota-job", "quota-pod", "quota-never", "quota-pod-never",
              "platforms/test_kubernetes_kinds.py::test_events_explain_pods_that_cannot_be_created",
              f"{CREATION}::test_submit_waits_for_a_used_up_quota"),
    "containers": ("of a pod with several containers no log could be had, and init containers were not seen",
                   "two-containers", "one-container-fails", "init", "init-fails"),
    "logs": ("they were read once, at the end: what had been rotated or had gone with its pod was lost",
             "platforms/test_kubernetes_logs.py::test_rotation_during_a_follow_loses_no_byte",
             "platforms/test_kubernetes_logs.py::test_a_pod_that_goes_with_its_last_line",
             "platforms/test_kubernetes_scale.py::test_a_hundred_pods_whose_streams_are_cut_lose_no_byte"),
    "dry run": ("it wrote an empty script: nobody could see the manifest",
                f"{HOUSE}::test_a_dry_run_shows_and_asks_nobody",
                f"{HOUSE}::test_the_server_looks_at_it_and_makes_nothing"),
}  # fmt: skip


@pytest.mark.parametrize("row", PAPER)
def test_every_named_proof_exists(row: str) -> None:
    _wrong, *shown = PAPER[row]
    known = {each.name for each in TOGETHER} | SESSION_FAULTS.keys()
    for name in shown:
        file, _, test = name.rpartition("::")
        assert re.search(rf"^def {test}\(", (TESTS / file).read_text(), re.MULTILINE) if file else name in known, name


@pytest.fixture(scope="module")
def plays(
    cluster: Stage, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Show, dict[str, Play]]]:
    """All that are wanted, in one session and at the same time."""
    show = Show(cluster, tmp_path_factory.mktemp("runs"), "together")
    cluster.intercept_creations()
    items = (item for item in request.session.items if isinstance(item, pytest.Function))
    wanted = [item.callspec.params.get("scenario") for item in items if hasattr(item, "callspec")]
    chosen = [each for each in TOGETHER if each in wanted and not any(map(cluster.lacks, each.needs))]
    yield show, {each.name: show.play(each) for each in chosen}
    assert show.runner.cancel() == []


@pytest.mark.parametrize("scenario", TOGETHER, ids=lambda each: each.name)
def test_scenario(cluster: Stage, plays: tuple[Show, dict[str, Play]], scenario: Scenario) -> None:
    if lacking := [why for need in scenario.needs if (why := cluster.lacks(need))]:
        pytest.skip("; ".join(lacking))
    show, known = plays
    show.wait_for_end(known[scenario.name])
    show.check(scenario, known[scenario.name])


SLOW = ("explanations-fail", "half-a-place")  # they wait for half a minute
NIGHTLY = pytest.mark.nightly("platforms/schedulers/kubernetes/status", "k8s_templates")


@pytest.mark.parametrize("name", [pytest.param(name, marks=NIGHTLY if name in SLOW else ()) for name in SESSION_FAULTS])
def test_session_fault(cluster: Stage, name: str, tmp_path: Path) -> None:
    session_fault = SESSION_FAULTS[name]
    if lacking := [why for need in session_fault.needs if (why := cluster.lacks(need))]:
        pytest.skip("; ".join(lacking))
    show = Show(cluster, tmp_path, name)
    try:
        session_fault.play(show)
    finally:
        cluster.front.clear_faults()
        show.runner.cancel()
