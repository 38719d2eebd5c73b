"""Makes pipeline/gitlab.yml of templates/bench.yml, for a GitLab that has no components (before 17.0).

The jobs are the same. An input of the component is a variable of the plain template. Where GitLab fills in no variables
(stage, timeout, expire_in), the plain template has the input's default, and the matrix of platforms is to be set.

    python -m pipeline.plain_template
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from pipeline import variables
from platforms import atomic_file, checkout

COMPONENT = checkout.ROOT / "templates/bench.yml"
PLAIN = checkout.ROOT / "pipeline/gitlab.yml"
HEADER = """\
# The jobs of templates/bench.yml for a GitLab without components (before 17.0), with variables in place of inputs. An
# including project sets the variables, and the platforms and tags of its runners in the hidden jobs:
#
#     include:
#       - {project: hpc/hpc-ml-bench, ref: main, file: /pipeline/gitlab.yml}
#     variables: {BENCH_SUITE: /opt/hpc-ml-bench, BENCH_RUNNER_TAG: login-node}
#     .bench-platforms: {parallel: {matrix: [{BENCH_JOB_PLATFORM: [archer2_cpu, archer2_mi210]}]}}
#
# This file is made from templates/bench.yml: change that one, then type  python -m pipeline.plain_template
"""
IN_PLACE: Mapping[str, str] = {
    "$[[ inputs.platform ]]": f"[{variables.NO_PLATFORM}]",
    "$[[ inputs.runner_tags ]]": "[$BENCH_RUNNER_TAG]",
    "$[[ inputs.image ]]": "$BENCH_IMAGE",
}
"""Inputs that stand outside of `variables:`, and what stands there instead. Others have their defaults."""
ONLY_HERE: Mapping[str, Mapping[str, Any]] = {
    "BENCH_RUNNER_TAG": {"description": "The tag of the runners that may submit to these platforms."},
    "BENCH_STEP": {
        "description": "What a pipeline that a person starts does. submit, all: it submits jobs. Empty: nothing.",
        "options": ["", *variables.STEPS],
    },
    "BENCH_ONLY": {"description": "The only platform whose jobs do something. Empty: all platforms of the pipeline."},
    "BENCH_RUN": {"description": "The only run that fetch reads or that cancel ends. Empty: all that are unfinished."},
}


def plain() -> str:
    """Make the content of the plain template."""
    header, body = COMPONENT.read_text().split("\n---\n")
    inputs: Mapping[str, Any] = yaml.safe_load(header)["spec"]["inputs"]
    described: dict[str, Mapping[str, Any]] = {}
    lines = []
    for line in body.splitlines():
        assigned = re.fullmatch(r' +(BENCH_\w+): "?\$\[\[ inputs\.(\w+) \]\]"?', line)
        if assigned:
            described[assigned[1]] = inputs[assigned[2]]
        else:
            lines.append(_filled(line, inputs))
    described |= {"BENCH_IMAGE": inputs["image"], **ONLY_HERE}
    content = {"variables": {name: _variable(spec) for name, spec in described.items()}}
    return f"{HEADER}{yaml.safe_dump(content, sort_keys=False, width=200)}\n" + "\n".join(lines) + "\n"


def _filled(line: str, inputs: Mapping[str, Any]) -> str:
    for typed, instead in IN_PLACE.items():
        line = line.replace(typed, instead)
    return re.sub(r"\$\[\[ inputs\.(\w+) \]\]", lambda found: str(inputs[found[1]]["default"]), line)


def _variable(spec: Mapping[str, Any]) -> dict[str, object]:
    """A variable as GitLab shows it to a person who starts a pipeline."""
    default = spec.get("default", "")
    if isinstance(default, bool):
        default = str(default).lower()
    variable: dict[str, object] = {"value": default, "description": spec["description"]}
    options = ["true", "false"] if spec.get("type") == "boolean" else spec.get("options")
    if options:
        variable["options"] = options
    return variable


if __name__ == "__main__":
    atomic_file.write_text(PLAIN, plain())
