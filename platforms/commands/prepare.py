"""`python -m platforms prepare NAME`: makes the missing data sets and Python packages on a platform's machine."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from platforms import checkout, transports
from platforms.config.schema import Platform
from platforms.job import BenchError, JobSpec, RefusedError
from platforms.rundir import code_archive
from platforms.runner import Job, Runner
from platforms.schedulers import backend_of
from platforms.schedulers.job_spec import one_process_spec
from platforms.schedulers.script import load_modules

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = checkout.benchmarks()
SIZES = ("smoke", "quick", "subset")
PACKAGES = {"numpy": "numpy", "h5py": "h5py", "PIL": "pillow"}  # what a job imports beside torch, and its name to pip
ENVIRONMENTS = ROOT / "environments"
ENV_LIMIT_S = 900.0

# Find what the job's Python lacks, as arguments of pip. Its version, torch and the rest each have another cure.
_LOOK = """\
{modules}env={env}
python={python}
{prefer_venv}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' ||
    {{ echo "$python is not there or older than Python 3.8" >&2; exit 78; }}
missing=$("$python" - {more} <<'END'
import importlib.util, sys
missing = [pip for name, pip in {packages!r}.items() if importlib.util.find_spec(name) is None]
torch, more = importlib.util.find_spec("torch"), sys.argv[1:]
if not torch and not any(word.startswith("torch") for word in more):
    sys.exit(1)
print(*more if not torch else [], *missing)
END
) || {{
    echo "$python has no torch: name one that does in \\`python:\\`, or \\`modules:\\`, or add --with torch" >&2
    exit 78
}}
[ -n "$missing" ] || {{ echo "nothing is missing in $(command -v "$python")"; exit 0; }}
"""
# Make a venv on top of the site's Python, and so keep its torch. A venv of a venv would lose the inner one's packages.
_MAKE = """\
if ! [ -x "$env/bin/python" ]; then
    "$python" -c 'import sys; sys.exit(sys.prefix != sys.base_prefix)' || {{
        echo "$(command -v "$python") is a venv itself, and lacks $missing: $python -m pip install $missing" >&2
        exit 78
    }}
    "$python" -m venv --system-site-packages "$env" || {{ rm -rf "$env"; exit 1; }}
fi
"$env/bin/python" -m pip install --quiet $missing && echo "$env has $missing"
"""
_SUGGEST = """\
echo "$python lacks $missing: $python -m pip install $missing, or remove \\`python:\\` to get a venv beside python3" >&2
exit 78
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--size", action="append", choices=SIZES, help="which size (default: the platform's own)")
    parser.add_argument("--benchmark", action="append", choices=BENCHMARKS, help="which benchmark (default: all)")
    parser.add_argument("--env", action="store_true", help="a venv beside the platform's Python with what that lacks")
    parser.add_argument(
        "--with", action="append", default=[], dest="more", metavar="REQUIREMENT", help="installed by --env, too"
    )
    parser.add_argument("--runs-dir", type=Path, metavar="DIR", help="where evidence is kept")


def main(options: argparse.Namespace) -> int:
    """Make what is missing. Returns 0 when all is there, else 1. Raises BenchError for what a person must put right."""
    site = checkout.site_folder(options.site)
    settings, platforms = checkout.load(site)
    platform = checkout.find(options.name, platforms)
    checkout.refuse_unready(platform, site, settings)
    for line in backend_of(platform).make_storage(platform):
        print(line)
    if options.env:
        make_environment(platform, options.more)
    benchmarks = options.benchmark or _that_can_run(platform)
    missing: dict[tuple[str, str], str] = {}
    for benchmark in dict.fromkeys(benchmarks):
        sizes = dict.fromkeys(options.size or [platform.for_benchmark(benchmark).size])
        for size in sizes:
            folder = platform.data_folder(benchmark, size, ROOT)
            if is_there(platform, folder):
                print(f"{benchmark} {size}: {folder} is there")
            else:
                missing[benchmark, size] = folder
    if not missing:
        return 0
    runs = options.runs_dir or checkout.home(options.site) / "runs"
    return make_data(platform, missing, runs)


def _that_can_run(platform: Platform) -> list[str]:
    """The benchmarks that can run on the platform. Prints which data sets are therefore not made."""
    names = []
    for name in BENCHMARKS:
        why = platform.obstacle(name)
        if why is None:
            names.append(name)
        else:
            print(f"{name}: not made, since it cannot run there: {why}; --benchmark {name} makes it all the same")
    return names


def is_there(platform: Platform, folder: str) -> bool:
    """Tell whether the login node sees a data set's folder. A folder that is there holds the whole set."""
    if not backend_of(platform).commands_see_data:
        return False  # only a job sees the folder; it does nothing if the set is there
    return transports.connect(platform).run(["test", "-d", folder]).exit_code == 0


def make_data(platform: Platform, missing: dict[tuple[str, str], str], runs: Path) -> int:
    """Run one job for each missing data set. Prints each error. Returns 0 when all jobs have succeeded, else 1."""
    run_id = time.strftime("prepare-%Y%m%d-%H%M%S")
    code = code_archive.build(ROOT / "models", runs / "archives")
    runner = Runner(runs, run_id, on_change=print_status)
    for (benchmark, size), folder in missing.items():
        if size == "full":
            hint = f"put it into {folder}; docs/benchmarks.md says where it comes from"
            raise RefusedError(f"{benchmark} full is the real data set: {hint}")
        runner.add(data_spec(platform, benchmark, size, folder, code.path, run_id), platform)
    failed = 0
    try:
        for job in runner.jobs:
            runner.wait(job)
            try:
                job.result()
            except BenchError as error:
                print(f"error: {error}", file=sys.stderr)
                failed += 1
    finally:
        runner.cancel()
    return 1 if failed else 0


def data_spec(platform: Platform, benchmark: str, size: str, folder: str, code: Path, run_id: str) -> JobSpec:
    """Describe the job that writes one data set, on one device of the platform."""
    test = f"prepare {benchmark} {size}"
    arguments = ("data", benchmark, "--size", size, "--data-dir", folder)
    spec = one_process_spec(platform, label=f"data-{benchmark}", test=test, run_id=run_id, arguments=arguments)
    return replace(spec, threads_per_rank=None, archive=code)  # it may use all threads


def platforms_of(recipe: Path) -> tuple[str, ...]:
    """Return the platforms that a comment of a recipe names: `Platforms: a, b`, up to a full stop or the line's end."""
    named = re.search(r"^#.*\bPlatforms: ([\w, ]+)", recipe.read_text(encoding="utf-8"), re.MULTILINE)
    return () if named is None else tuple(named[1].replace(",", " ").split())


def pins(name: str, folder: Path = ENVIRONMENTS) -> dict[str, str]:
    """Return what the environment of a platform pins, as `h5py==3.16.0` by the package's name; none: {}."""
    for file in sorted(folder.glob("*/requirements.txt")):
        if name in platforms_of(file):
            lines = file.read_text(encoding="utf-8").splitlines()
            return {line.partition("==")[0]: line for line in lines if "==" in line and not line.startswith("#")}
    return {}


def make_environment(platform: Platform, more: Sequence[str]) -> None:
    """Make a venv in work_dir. The login node makes it, since compute nodes often have no network.

    It gets those of PACKAGES that are missing, in the versions of the platform's folder in environments/ if it has one,
    else the newest.

    Raises RefusedError, with the missing thing and its cure, where no venv can be made.
    """
    backend = backend_of(platform)
    if backend.file_keys.this_machine:
        raise RefusedError("--env is for other machines: here `make bench` sets up what it needs")
    key_and_image = backend.image_key(platform)
    if key_and_image is not None:
        key, _image = key_and_image
        raise RefusedError(
            "--env: jobs run in an image, where a venv of the host is of no use: name one that has torch, numpy, h5py "
            f"and Pillow as `{key}: {{image: …}}` in {platform.source}; recipes are in {ENVIRONMENTS}"
        )
    transport = transports.connect(platform)
    makes_venv = platform.python == "auto"
    if makes_venv:
        template = _LOOK + _MAKE
        python = "python3"
        prefer_venv = '[ -x "$env/bin/python" ] && python=$env/bin/python'
    else:
        template = _LOOK + _SUGGEST
        python = platform.python
        prefer_venv = ""
    pinned = pins(platform.name)
    script = template.format(
        modules="".join(f"{line}\n" for line in load_modules(platform)),
        env=shlex.quote(f"{platform.work_dir}/env-{platform.name}"),
        python=shlex.quote(python),
        prefer_venv=prefer_venv,
        packages={name: pinned.get(pip, pip) for name, pip in PACKAGES.items()},
        more=shlex.join(more),
    )
    done = transport.run(["bash", "-s"], input=script.encode(), timeout_s=ENV_LIMIT_S)
    output = (done.stdout + done.stderr).decode(errors="replace").strip()
    if done.exit_code:
        raise RefusedError(f"{platform.name}: no environment was made on {transport.where}: {output}")
    print(output)


def print_status(job: Job) -> None:
    print(f"{time.strftime('%H:%M:%S')} {job.spec.name} on {job.spec.platform}: {job.status}", flush=True)
