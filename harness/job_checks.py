"""What is refused before anything is submitted: jobs that cost too much, cannot start, or would do nothing."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from harness import cases
from harness.collection import TestFiles
from harness.inputs import Inputs
from harness.wording import counted
from platforms.config.schema import Platform
from platforms.job import DEVICE_UNITS, JobSpec

CHECK_S = 60.0  # the time limit of a Python interpreter that parses one command line

# The id of a job test begins like this: cases.case_id.
JOB_TEST = re.compile(r"[^[]*\[[a-z][a-z0-9_]*-\d+x\d+(cpu|gpu|ipu|csx)\b")

# Plugins of pytest that run a test again, beside others or in another process, by the names under which pytest knows
# them: their options, settings of pytest.ini and marks that do it. Those in ONCE_IS_NOTHING do nothing with a 1.
REPEATERS = {
    "rerunfailures": ("reruns", "force_reruns", "flaky"),
    "flaky": ("force_flaky", "flaky"),
    "pytest-retry": ("retries", "flaky"),
    "pytest_forked": ("forked",),
    "pytest_isolate": ("isolate", "isolate_timeout", "isolate_mem_limit", "isolate_cpu_limit"),
    "repeat": ("count", "repeat"),
    "loop": ("loop", "hours", "minutes", "seconds"),
    "pytest_stress": ("hours", "minutes", "seconds"),
    "pytest-rerun-all": ("rerun_time", "rerun_iter"),
    "flakefinder": ("flake_finder_enable",),
    "parallel": ("workers", "tests_per_worker"),
    "run-parallel": ("parallel_threads", "iterations", "forever"),
    "concurrent": ("concurrent_mode",),
    "pytest-mp": ("use_mp",),
}
ONCE_IS_NOTHING = ("count", "loop", "parallel_threads", "iterations", "workers", "tests_per_worker")


def cost_line(inputs: Inputs, jobs: Sequence[JobSpec], most_h: float) -> str | None:
    """One line on what jobs away from this machine may cost; None when all of them run here.

    Args:
        jobs: that begin in any case.
        most_h: what they and all that may follow them may cost, in device-hours.

    Raises UsageError if the jobs are above the site's max_device_hours.
    """
    away = [spec for spec in jobs if spec.platform != cases.HOME]
    count = counted(len(away), "job")
    hours = sum(spec.device_hours for spec in away)
    allowed = inputs.site.max_device_hours
    if allowed is not None and hours > allowed:
        raise pytest.UsageError(
            f"{count} may cost {hours:.1f} device-hours (devices x time limit); "
            f"{inputs.options.site / 'site.yaml'} says max_device_hours: {allowed:g}. Nothing was submitted. Select "
            "fewer with -k, or raise the limit."
        )
    if not hours:
        return None
    line = f"{count}, at most {hours:.1f} device-hours (devices x time limit)"
    if most_h > hours:
        limit = "" if allowed is None else f", within max_device_hours: {allowed:g}"
        line += f"; with those that may follow, {most_h:.1f}{limit}"
    return line


def refuse_incomplete(inputs: Inputs, jobs: Mapping[str, JobSpec]) -> None:
    """Raise UsageError for a platform with a `${site.…}` that has no value: its jobs would contain that text."""
    for platform in used_platforms(inputs, jobs):
        missing = platform.missing
        if missing:
            values = ", ".join(f"{key}: …" for key in missing)
            raise pytest.UsageError(
                f"{platform.name}: {', '.join(missing)} not set, so nothing was submitted. "
                f"Write `values: {{{values}}}` in {inputs.options.site / 'site.yaml'}, or export "
                f"HPC_ML_BENCH_{missing[0].upper()}"
            )


def used_platforms(inputs: Inputs, jobs: Mapping[str, JobSpec]) -> list[Platform]:
    """The platforms of these jobs, each once."""
    return [inputs.platforms[name] for name in dict.fromkeys(spec.platform for spec in jobs.values())]


def refuse_unknown_committed(files: TestFiles, inputs: Inputs, jobs: Mapping[str, JobSpec]) -> None:
    """Raise UsageError for a committed value of a test that there cannot be on its platform."""
    platforms = used_platforms(inputs, jobs)
    if not any(platform.committed for platform in platforms):
        return
    from reporting.gate.committed import commitments

    for platform in platforms:
        names = (None, *platform.benchmarks)
        layouts = [str(one) for name in names for kind in platform.layouts for one in platform.layout_list(name, kind)]
        for commitment in commitments([platform]):
            file = files.of_test(commitment.keys.test)
            test, _, case = commitment.keys.test.rpartition("::")[2].partition("[")
            function = rf"^ *(async +)?def {re.escape(test)}\("
            if not file.is_file():
                what = f"there is no file {file}"
            elif not re.search(function, file.read_text(errors="replace"), re.MULTILINE):
                what = f"{file} has no test {test!r}"
            elif not case.startswith(tuple(f"{platform.name}-{layout}" for layout in layouts)):
                what = f"{platform.name} has no such layout: an id is as in {test}[{platform.name}-{layouts[0]}]"
            else:
                continue
            raise pytest.UsageError(f"{commitment.mistake('test', what)}. Nothing was submitted")


def refuse_untrainable(inputs: Inputs, jobs: Mapping[str, JobSpec], items: Sequence[pytest.Item]) -> None:
    """Raise UsageError for a benchmark's job that models/ would refuse, after its wait in the queue."""
    for item in items:
        spec = jobs.get(item.nodeid)
        if spec is None:
            continue
        reason = why_untrainable(inputs.platforms[spec.platform], spec, item)
        if reason:
            others = ". Without --try-unsupported it is skipped, and the others run" if spec.unsupported else ""
            raise pytest.UsageError(f"{item.nodeid}: {reason}. Nothing was submitted{others}")


def why_untrainable(platform: Platform, spec: JobSpec, item: pytest.Item) -> str:
    """Why models/ would refuse a job's command line, in one sentence; empty where nothing speaks against it."""
    if spec.benchmark is None or not spec.ranks:  # its scheduler refuses a layout that holds no rank
        return ""
    # We write the rest of the command line ourselves, so it needs the check only for a user's own arguments, for what
    # some devices cannot do of what our options and a platform's file may ask for, and for what an older commit lacks.
    mark = cases.workload(item) or {}
    has_own_arguments = spec.stack is not None or bool(platform.arguments) or "arguments" in mark
    is_new = "--decompose" in spec.arguments
    if not (has_own_arguments or is_new or DEVICE_UNITS[spec.layout.unit].driven_together):
        return ""
    error = _command_line_error(spec)
    if error and has_own_arguments:
        stack = f", of its stack {spec.stack}" if spec.stack is not None else ""
        return f"its job would refuse `arguments:` of {platform.source}{stack} or of its workload mark: {error}"
    return f"its job would refuse what it is asked for: {error}" if error else ""


def _command_line_error(spec: JobSpec) -> str:
    """What models/ says against the job's command line; empty where it accepts it."""
    # -I: a PYTHONPATH of this session must not put other modules in the place of the archive's.
    command = [sys.executable, "-I", str(spec.archive), *spec.arguments, "--check"]
    environ = {**os.environ, **spec.env}
    done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_S, check=False, env=environ)
    return "" if done.returncode == 0 else done.stderr.strip().removeprefix("error: ")


def refuse_xdist(ids: Sequence[str]) -> None:
    """Raise UsageError for job tests under xdist, which disables pytest-benchmark."""
    job_tests = [test for test in ids if JOB_TEST.match(test)]
    if job_tests:
        raise pytest.UsageError(
            f"-n (xdist) does not go with job tests such as {job_tests[0]}: leave it out, they run side by side anyway"
        )


def refuse_repeaters(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Raise UsageError where another plugin would run job tests again or elsewhere: a job is measured once, by us."""
    for plugin, names in REPEATERS.items():
        for name in names if config.pluginmanager.hasplugin(plugin) else ():
            value = config.getoption(name, None)
            with contextlib.suppress(ValueError):  # pytest.ini knows no such setting
                value = value or config.getini(name)
            is_once = name in ONCE_IS_NOTHING and str(value) == "1"
            marked = [item for item in items if item.get_closest_marker(name)]
            if (value and str(value) != "0" and not is_once) or marked:
                raise pytest.UsageError(
                    f"{name} (of the plugin {plugin}) does not go with job tests such as "
                    f"{(marked or items)[0].nodeid}: it runs the test again or in another process, and its job not: "
                    "leave it out (the gate repeats suspect jobs by itself: docs/gate.md). Nothing was submitted"
                )
