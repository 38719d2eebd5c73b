"""The steps of doctor that look at what a job would find: Python, torch, packages, devices."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from platforms.commands.doctor import node_report
from platforms.config.schema import Platform
from platforms.job import JobSpec, RefusedError
from platforms.rundir.job_folder import make_folder
from platforms.runner import Job, Runner
from platforms.schedulers import backend_of
from platforms.schedulers.doctor_steps import StepResult, Visit, output_of
from platforms.schedulers.job_spec import one_process_spec
from platforms.schedulers.script import load_modules

REPORT = Path(node_report.__file__)
IMPORT_LIMIT_S = 600.0  # torch on a file system that is busy
OURS = {"numpy": "numpy", "h5py": "h5py", "PIL": "Pillow"}  # by their names in an import
# What a device family needs beside torch, by its name in an import, and how one gets it.
FAMILY_PACKAGES: Mapping[str, str] = {"csx": "cerebras.pytorch", "ipu": "poptorch"}
CURES: Mapping[str, str] = {
    "csx": "copy environments/csx/requirements.txt to that machine, type there: python3.11 -m venv env-csx && "
    "env-csx/bin/python -m pip install -r requirements.txt; and name env-csx/bin/python as `python:` in {source}",
    "ipu": "it is in Graphcore's Poplar SDK 3.x and not on PyPI: pip install poptorch-3.*.whl from there, into the "
    "Python that `python:` in {source} names",
}

_PYTHON = """\
{setup}{python}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' ||
    {{ echo "$python is not there or older than Python 3.8" >&2; exit 78; }}
exec "$python" - {words} <<'END-OF-REPORT'
{report}
END-OF-REPORT
"""


def python(visit: Visit) -> StepResult:
    """Check the jobs' Python on a machine where commands run where jobs do."""
    platform = visit.platform
    script = _PYTHON.format(
        setup="".join(f"{line}\n" for line in (*load_modules(platform), *platform.setup)),
        python=_choose_python(platform),
        words=" ".join(_import_words(platform)),
        report=REPORT.read_text(encoding="utf-8"),
    )
    done = visit.transport.run(["bash", "-s"], input=script.encode(), timeout_s=IMPORT_LIMIT_S)
    report = find_report(done.stdout.decode(errors="replace"))
    if report is None:
        hint = f"name another one as `python:` in {platform.source}"
        raise RefusedError(f"{visit.transport.where}: {output_of(done)}; {hint}")
    return judge(report, platform, visit.more)


def node(visit: Visit, runs: Path) -> StepResult:
    """Run a real job of seconds.

    Where only jobs see their machine, the job reports on it. Elsewhere the step `python` has done that, and the job
    only shows that jobs run from their submission to their end.
    """
    platform = visit.platform
    run_id = time.strftime("doctor-%Y%m%d-%H%M%S")
    runner = Runner(runs, run_id, on_change=_print_status)
    backend = backend_of(platform)
    folders = () if backend.commands_see_data else visit.data_folders().values()
    job = runner.add(node_check_spec(platform, runs, run_id, *folders), backend.platform_for_doctor(platform))
    try:
        runner.wait(job)
    finally:
        runner.cancel()
    job.result()
    if not backend.only_jobs_see_their_machine:
        return StepResult(f"a job ran from its submission to its end ({job.folder})")
    report = find_report((job.folder / "log").read_text(encoding="utf-8", errors="replace"))
    if report is None:
        raise RefusedError(f"the job ended well and reported nothing: less {job.folder / 'log'}")
    for path, is_there in report.get("folders", {}).items():
        visit.folders[path] = "there" if is_there else "missing"
    return judge(report, platform, visit.more)


def node_check_spec(platform: Platform, runs: Path, run_id: str, *folders: str) -> JobSpec:
    """Describe a job of one rank on one device, which reports whether the folders exist."""
    reports = backend_of(platform).only_jobs_see_their_machine
    arguments = (*_import_words(platform), *folders) if reports else ("true",)
    spec = one_process_spec(platform, label="doctor", test="doctor", run_id=run_id, arguments=arguments)
    return replace(
        spec,
        archive=_archived_report(runs) if reports else None,
        time_limit_s=min(IMPORT_LIMIT_S, platform.time_limit_s),
    )


def find_report(text: str) -> dict[str, Any] | None:
    """Find the report of node_report.py in a log. Returns None when the log has none."""
    line = re.search(rf"^{node_report.MARK}(\{{.*\}})$", text, re.MULTILINE)
    if line is None:
        return None
    try:
        return dict(json.loads(line[1]))
    except ValueError:
        return None


def judge(report: Mapping[str, Any], platform: Platform, more: str = "") -> StepResult:
    """Write the report in one line. Raises RefusedError, with the cure, when a job would lack something."""
    packages = report["packages"]
    at = f"{report['executable']} on {report['node']}"
    of_family = FAMILY_PACKAGES.get(platform.unit)
    if of_family is not None and packages[of_family]["version"] is None:
        error = packages[of_family]["error"]
        problem = f"cannot be imported ({error})" if error else "is missing"
        raise RefusedError(
            f"{at}: {of_family} {problem}, and device: {platform.unit} needs it: {_cure_of_family(platform)}"
        )
    torch_problem = _torch_problem(packages["torch"])
    if torch_problem:
        raise RefusedError(f"{at}: {torch_problem}: {_cure_of_torch(platform, more)}")
    missing = [name for name in OURS if packages[name]["version"] is None]
    if missing:
        described = []
        for name in missing:
            error = packages[name]["error"]
            described.append(f"{OURS[name]} ({error})" if error else OURS[name])
        cure = _cure_of_packages(report, platform, missing, more)
        raise RefusedError(f"{at}: missing: {', '.join(described)}: {cure}")
    devices = report["devices"]
    if platform.unit == "gpu" and not devices:
        raise RefusedError(
            f"{at}: torch {packages['torch']['version']} sees no GPU: is it a build for CPUs, or did the job get none? "
            f"{backend_of(platform).device_keys} in {platform.source}"
        )
    versions = [f"{OURS.get(name, name)} {package['version']}" for name, package in packages.items()]
    parts = [f"Python {report['python']}", *versions, *devices, f"{report['cores']} cores"]
    return StepResult(f"{at}: {', '.join(parts)}")


def _torch_problem(torch: Mapping[str, Any]) -> str:
    version = torch["version"]
    if version is None:
        return f"torch cannot be imported ({torch['error']})" if torch["error"] else "torch is missing"
    major = re.match(r"\d+", version)
    if major and int(major[0]) < 2:
        return f"torch {version} is older than 2.0"
    return ""


def _other_image(platform: Platform) -> str:
    """Write the advice to choose another image; empty where jobs run in none."""
    key_and_image = backend_of(platform).image_key(platform)
    if key_and_image is None:
        return ""
    key, image = key_and_image
    return f"name an image that has it, in place of {image}: `{key}: {{image: …}}` in {platform.source}"


def _cure_of_packages(report: Mapping[str, Any], platform: Platform, missing: Sequence[str], more: str) -> str:
    other_image = _other_image(platform)
    if other_image:
        return other_image
    if backend_of(platform).file_keys.this_machine:
        return f"{report['executable']} -m pip install {' '.join(OURS[name] for name in missing)}"
    return f"python -m platforms prepare {platform.name} --env{more}"


def _import_words(platform: Platform) -> list[str]:
    """Write the words with which node_report.py also looks for the package of the platform's device family."""
    return [f"{node_report.IMPORT}{name}" for unit, name in FAMILY_PACKAGES.items() if unit == platform.unit]


def _cure_of_family(platform: Platform) -> str:
    return _other_image(platform) or CURES[platform.unit].format(source=platform.source)


def _cure_of_torch(platform: Platform, more: str) -> str:
    other_image = _other_image(platform)
    if other_image:
        return other_image
    if backend_of(platform).file_keys.this_machine:
        return "pip install '.[local]', or run pytest by a Python that has it"
    make = f"python -m platforms prepare {platform.name} --env --with torch{more}"
    return f"name its module in `modules:` or a Python that has it as `python:` in {platform.source}, or {make}"


def _choose_python(platform: Platform) -> str:
    """Write the shell line that finds the jobs' Python in the same way as the schedulers' scripts."""
    python = backend_of(platform).job_python(platform)
    if python != "auto":
        return f"python={shlex.quote(python)}"
    prepared = shlex.quote(f"{platform.work_dir}/env-{platform.name}/bin/python")
    return f'python={prepared}; [ -x "$python" ] || python=python3'


def _archived_report(runs: Path) -> Path:
    """Copy node_report.py to a name with a hash of its content: a machine gets a file of one name only once."""
    content = REPORT.read_bytes()
    path = runs / "archives" / f"node-report-{hashlib.sha256(content).hexdigest()[:12]}.py"
    make_folder(path.parent)
    path.write_bytes(content)
    return path


def _print_status(job: Job) -> None:
    if not job.done:
        print(f"{'':9}{'node':<11}{job.status}", file=sys.stderr, flush=True)
