"""The component: its jobs begin only where they should, and wrong inputs are refused.

gitlab-ci-local also checks what it expands against the JSON schema of GitLab's CI files, which it brings along.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline import variables
from tests.pipeline.gitlab_ci_local import ROOT, CentreProject

INPUTS: Mapping[str, object] = {"platform": ["a100", "h100"], "runner_tags": ["login"], "suite": "/opt/hpc-ml-bench"}
of_gitlab = pytest.mark.slow  # gitlab-ci-local takes a second for each pipeline
at_night = pytest.mark.nightly("templates")
OWN, FORK = "1217", "99"  # ids of projects; gitlab-ci-local gives the first to every project


@pytest.fixture
def centre(tmp_path: Path) -> CentreProject:
    project = CentreProject(tmp_path, {})
    project.write("site/site.yaml", "enabled: []\n")
    return project


def include_component(project: CentreProject, **inputs: object) -> None:
    component = "$CI_SERVER_FQDN/hpc/hpc-ml-bench/bench@main"
    project.write(".gitlab-ci.yml", yaml.safe_dump({"include": [{"component": component, "inputs": INPUTS | inputs}]}))
    project.commit()


def spec() -> dict[str, Any]:
    header = (ROOT / "templates/bench.yml").read_text().partition("\n---\n")[0]
    inputs: dict[str, Any] = yaml.safe_load(header)["spec"]["inputs"]
    return inputs


def test_each_variable_of_the_component_is_checked() -> None:
    body = (ROOT / "templates/bench.yml").read_text().partition("\n---\n")[2]
    assigned = re.findall(r"BENCH_(\w+): \"?\$\[\[ inputs\.(\w+) \]\]", body)
    assert assigned
    of_schedules = {"STEP", "ONLY", "RUN", "PLATFORM"}
    assert {name for name, _ in assigned} | of_schedules == variables.CHECKS.keys()
    declared = spec()
    for name, typed in assigned:
        default = declared[typed].get("default", "")
        for value in declared[typed].get("options", [default]):
            if value != "" and not isinstance(value, bool):
                assert re.fullmatch(variables.CHECKS[name][0], value)


def test_each_input_has_a_description_and_its_default_is_allowed() -> None:
    for name, declared in spec().items():
        assert declared["description"].endswith("."), name
        if "options" in declared:
            assert declared["default"] in declared["options"], name


READING = {"fetch", "report", "pages"}


@of_gitlab
@pytest.mark.parametrize(
    ("source", "step", "begun"),
    [
        ("schedule", "", {"submit", *READING}),
        pytest.param("schedule", "all", {"submit", *READING}, marks=at_night),
        pytest.param("schedule", "submit", {"submit"}, marks=at_night),
        ("schedule", "fetch", READING),
        pytest.param("schedule", "cancel", set(), marks=at_night),
        ("web", "", set()),
        pytest.param("web", "all", {"submit", *READING}, marks=at_night),
        pytest.param("web", "submit", {"submit"}, marks=at_night),
        pytest.param("web", "fetch", READING, marks=at_night),
        ("web", "cancel", {"cancel"}),
        pytest.param("push", "all", set(), marks=at_night),
    ],
)
def test_which_jobs_a_pipeline_begins(centre: CentreProject, source: str, step: str, begun: set[str]) -> None:
    include_component(centre, pages=True)
    jobs = centre.jobs(source, BENCH_STEP=step)
    assert {name.partition(":")[0].removeprefix("bench-") for name in jobs} == begun


@of_gitlab
def test_each_platform_has_jobs_of_its_own(centre: CentreProject) -> None:
    include_component(centre, name="gpu")
    assert centre.jobs("schedule") == {
        "gpu-submit: [a100]": "on_success",
        "gpu-submit: [h100]": "on_success",
        "gpu-fetch: [a100]": "always",
        "gpu-fetch: [h100]": "always",
        "gpu-report": "always",
    }


@of_gitlab
def test_in_each_job_one_platform_can_be_chosen(centre: CentreProject) -> None:
    centre.write("site/site.yaml", "enabled: [second]\n")
    centre.write("site/platforms/second.yaml", "scheduler: local\ndevice: cpu\nlayouts: {default: [1x1]}\n")
    include_component(centre, platform=["local", "second"], suite=str(ROOT))
    chosen = centre.pipeline(701, BENCH_STEP="fetch", BENCH_ONLY="second")
    assert "PASS  bench-fetch: [local]" in chosen.text
    assert "BENCH_ONLY is second, and this job is of local" in chosen.text
    assert "the jobs of second are processes of this machine" in chosen.text


@of_gitlab
def test_nothing_runs_on_a_branch_that_is_not_protected(centre: CentreProject) -> None:
    include_component(centre)
    assert centre.jobs("web", BENCH_STEP="all", CI_COMMIT_REF_PROTECTED="false") == {}


@of_gitlab
@pytest.mark.parametrize(
    ("allowed", "project", "begun"),
    [
        pytest.param("never", OWN, {}, marks=at_night),
        ("check", OWN, {"bench-check": "on_success"}),
        ("manual", OWN, {"bench-check": "on_success", "bench-measure": "manual"}),
        ("manual", FORK, {}),
    ],
)
def test_a_merge_request_submits_nothing_by_itself_and_a_fork_runs_nothing(
    centre: CentreProject, allowed: str, project: str, begun: dict[str, str]
) -> None:
    include_component(centre, merge_requests=allowed, platform=["a100"])
    jobs = centre.jobs("merge_request_event", CI_MERGE_REQUEST_SOURCE_PROJECT_ID=project)
    assert {name.partition(":")[0]: when for name, when in jobs.items()} == begun


@of_gitlab
@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("platform", "a100", "not a array"),
        pytest.param("runner_tags", "login", "not a array", marks=at_night),
        pytest.param("pages", "yes", "not a boolean", marks=at_night),
        ("size", "large", "not in the list of allowed options"),
        pytest.param("gate", "strict", "not in the list of allowed options", marks=at_night),
        pytest.param("merge_requests", "always", "not in the list of allowed options", marks=at_night),
        ("wait", "5 minutes", "does not match"),
        pytest.param("history", "../history", "does not match", marks=at_night),
        pytest.param("runs", "runs", "does not match", marks=at_night),
        pytest.param("name", "My Bench", "does not match", marks=at_night),
    ],
)
def test_an_input_of_another_type_is_refused(centre: CentreProject, name: str, value: object, why: str) -> None:
    include_component(centre, **{name: value})
    with pytest.raises(ValueError, match=f"`{name}` input: .*{why}"):
        centre.jobs("schedule")
