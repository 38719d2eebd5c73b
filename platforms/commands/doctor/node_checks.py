"""The steps of doctor that look at what a job would find: Python, torch, packages, devices, memory."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from platforms.commands.doctor import node_report
from platforms.config.schema import Platform
from platforms.job import JobSpec, Layout, RefusedError
from platforms.rundir.job_folder import make_folder
from platforms.runner import Job, Runner
from platforms.schedulers import backend_of
from platforms.schedulers.doctor_steps import StepResult, Visit, output_of
from platforms.schedulers.job_spec import new_spec

REPORT = Path(node_report.__file__)
IMPORT_LIMIT_S = 600.0  # torch on a file system that is busy
OURS = {"numpy": "numpy", "h5py": "h5py", "PIL": "Pillow"}  # by their names in an import

_PYTHON = """\
{modules}{setup}{python}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' ||
    {{ echo "$python is not there or older than Python 3.8" >&2; exit 78; }}
exec "$python" - <<'END-OF-REPORT'
{report}
END-OF-REPORT
"""


def python(visit: Visit) -> StepResult:
    """The Python of the jobs, on a machine where commands run where jobs do."""
    platform = visit.platform
    loads = [f"module load {shlex.quote(module)} || exit\n" for module in platform.modules]
    script = _PYTHON.format(
        modules="".join(["type module >/dev/null 2>&1 || . /etc/profile\n", *loads] if loads else []),
        setup="".join(f"{line}\n" for line in platform.setup),
        python=_choice(platform),
        report=REPORT.read_text(encoding="utf-8"),
    )
    done = visit.transport.run(["bash", "-s"], input=script.encode(), timeout_s=IMPORT_LIMIT_S)
    report = find_report(done.stdout.decode(errors="replace"))
    if report is None:
        hint = f"name another one as `python:` in {platform.source}"
        raise RefusedError(f"{visit.transport.where}: {output_of(done)}; {hint}")
    return judge(report, platform, visit.more)


def node(visit: Visit, runs: Path) -> StepResult:
    """A real job of seconds. Where only jobs see what a job finds it says that; elsewhere `python` has said so, and it
    shows that a job runs from its submission to its end."""
    platform, run_id = visit.platform, time.strftime("doctor-%Y%m%d-%H%M%S")
    runner = Runner(runs, run_id, on_change=_say)
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
        raise RefusedError(f"the job ended well and said nothing: less {job.folder / 'log'}")
    visit.folders.update({path: "there" if seen else "missing" for path, seen in report.get("folders", {}).items()})
    return judge(report, platform, visit.more)


def node_check_spec(platform: Platform, runs: Path, run_id: str, *folders: str) -> JobSpec:
    """One rank on one device, which says whether there are such folders."""
    layout = Layout(1, 1, platform.unit)
    reports = backend_of(platform).only_jobs_see_their_machine
    arguments = folders if reports else ("true",)
    spec = new_spec(platform, label="doctor", test="doctor", layout=layout, run_id=run_id, arguments=arguments)
    return replace(
        spec,
        ranks_per_device=1,
        archive=_travelling(runs) if reports else None,
        time_limit_s=min(IMPORT_LIMIT_S, platform.time_limit_s),
    )


def find_report(text: str) -> dict[str, Any] | None:
    """What node_report.py printed, somewhere in a log."""
    line = re.search(rf"^{node_report.MARK}(\{{.*\}})$", text, re.MULTILINE)
    try:
        return dict(json.loads(line[1])) if line else None
    except ValueError:
        return None


def judge(report: Mapping[str, Any], platform: Platform, more: str = "") -> StepResult:
    """The report in one line. Raises RefusedError for what a job would lack, with its cure."""
    packages = report["packages"]
    at = f"{report['executable']} on {report['node']}"
    if wrong := _wrong_torch(packages["torch"]):
        raise RefusedError(f"{at}: {wrong}: {_cure(platform, more)}")
    if missing := [name for name in OURS if packages[name]["version"] is None]:
        why = [
            f"{OURS[name]} ({packages[name]['error']})" if packages[name]["error"] else OURS[name] for name in missing
        ]
        install = f"{report['executable']} -m pip install {' '.join(OURS[name] for name in missing)}"
        make = f"python -m platforms prepare {platform.name} --env{more}"
        if backend_of(platform).file_keys.this_machine:
            make = install
        make = _other_image(platform) or make
        raise RefusedError(f"{at}: missing: {', '.join(why)}: {make}")
    devices = report["devices"]
    if platform.unit == "gpu" and not devices:
        raise RefusedError(
            f"{at}: torch {packages['torch']['version']} sees no GPU: is it a build for CPUs, or did the job get none? "
            f"{backend_of(platform).device_keys} in {platform.source}"
        )
    versions = [f"{OURS.get(name, name)} {one['version']}" for name, one in packages.items()]
    found = [f"Python {report['python']}", *versions, *devices, *_memory(report), _cores(report)]
    return StepResult(f"{at}: {', '.join(found)}")


def _memory(report: Mapping[str, Any]) -> list[str]:
    """What is free on the node, or what the job may have where that is less."""
    free, limit = report["free_bytes"], report["limit_bytes"]
    if limit and (not free or limit < free):
        node = f" ({free / 2**30:.0f} GiB are free on the node)" if free else ""
        return [f"{limit / 2**30:.3g} GiB allowed{node}"]
    return [f"{free / 2**30:.0f} GiB free"] if free else []


def _cores(report: Mapping[str, Any]) -> str:
    quota = report["cpu_quota"]
    limited = quota is not None and quota < report["cores"]
    return f"{quota:.2g} of {report['cores']} cores (a CPU quota)" if limited else f"{report['cores']} cores"


def _wrong_torch(torch: Mapping[str, Any]) -> str:
    version = torch["version"]
    if version is None:
        return f"torch cannot be imported ({torch['error']})" if torch["error"] else "torch is missing"
    major = re.match(r"\d+", version)
    return f"torch {version} is older than 2.0" if major and int(major[0]) < 2 else ""


def _other_image(platform: Platform) -> str:
    """What to do about the image in which jobs run; empty if they run in none."""
    key_and_image = backend_of(platform).image_key(platform)
    if key_and_image is None:
        return ""
    key, image = key_and_image
    return f"name an image that has it, in place of {image}: `{key}: {{image: …}}` in {platform.source}"


def _cure(platform: Platform, more: str) -> str:
    """What to do about a torch that is missing."""
    if other_image := _other_image(platform):
        return other_image
    if backend_of(platform).file_keys.this_machine:
        return "pip install '.[local]', or run pytest by a Python that has it"
    make = f"python -m platforms prepare {platform.name} --env --with torch{more}"
    return f"name its module in `modules:` or a Python that has it as `python:` in {platform.source}, or {make}"


def _choice(platform: Platform) -> str:
    """The shell line that finds the jobs' Python, as the schedulers' scripts do."""
    python = backend_of(platform).job_python(platform)
    if python != "auto":
        return f"python={shlex.quote(python)}"
    prepared = shlex.quote(f"{platform.work_dir}/env-{platform.name}/bin/python")
    return f'python={prepared}; [ -x "$python" ] || python=python3'


def _travelling(runs: Path) -> Path:
    """node_report.py under a name that says its content, as what is put on a machine once must have."""
    content = REPORT.read_bytes()
    path = runs / "archives" / f"node-report-{hashlib.sha256(content).hexdigest()[:12]}.py"
    make_folder(path.parent)
    path.write_bytes(content)
    return path


def _say(job: Job) -> None:
    if not job.done:
        print(f"{'':9}{'node':<11}{job.status}", file=sys.stderr, flush=True)
