"""`python -m platforms prepare NAME`: the data sets, and what Python lacks, on the machine of a platform."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from platforms import checkout, transports
from platforms.config.schema import Platform
from platforms.job import BenchError, JobSpec, Layout, RefusedError
from platforms.rundir import code_archive
from platforms.runner import Job, Runner
from platforms.schedulers import backend_of
from platforms.schedulers.job_spec import new_spec

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = checkout.benchmarks()
SIZES = ("smoke", "quick", "subset")
PACKAGES = ("numpy", "h5py", "PIL")  # what a job imports beside torch, by their names in an import
ENV_LIMIT_S = 900.0

# What the job's Python lacks, as words for pip. Version, then torch, then the rest: each is another cure.
_LOOK = """\
{modules}env={env}
python={python}
{known}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))' ||
    {{ echo "$python is not there or older than Python 3.8" >&2; exit 78; }}
missing=$("$python" - {more} <<'END'
import importlib.util, sys
names = {{"PIL": "Pillow"}}
missing = [names.get(name, name) for name in {packages!r} if importlib.util.find_spec(name) is None]
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
# A venv beside the site's Python, which keeps its torch. A venv of a venv would not: it sees only what is below both.
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
_SAY = """\
echo "$python lacks $missing: $python -m pip install $missing, or remove \\`python:\\` to get a venv beside python3" >&2
exit 78
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--size", action="append", choices=SIZES, help="which size (default: the platform's own)")
    parser.add_argument("--benchmark", action="append", choices=BENCHMARKS, help="which benchmark (default: all)")
    parser.add_argument("--env", action="store_true", help="a venv beside the platform's Python with what that lacks")
    parser.add_argument(
        "--with", action="append", default=[], dest="more", metavar="REQUIREMENT", help="installed by --env, too"
    )
    parser.add_argument("--runs-dir", type=Path, metavar="DIR", help="where evidence is kept")


def main(options: argparse.Namespace) -> int:
    """Make what is missing; 0 when all is there. Raises BenchError for what a person must put right."""
    site = checkout.site_folder(options.site)
    settings, platforms = checkout.load(site)
    platform = checkout.find(options.name, platforms)
    checkout.refuse_unready(platform, site, settings)
    for line in backend_of(platform).make_storage(platform):
        print(line)
    if options.env:
        make_environment(platform, options.more)
    benchmarks = options.benchmark or [name for name in BENCHMARKS if name not in platform.unsupported]
    wanted = {
        (benchmark, size): platform.data_folder(benchmark, size, ROOT)
        for benchmark in benchmarks
        for size in options.size or [platform.for_benchmark(benchmark).size]
    }
    missing = {key: folder for key, folder in wanted.items() if not is_there(platform, folder)}
    for key in wanted.keys() - missing.keys():
        print(f"{' '.join(key)}: {wanted[key]} is there")
    runs = options.runs_dir or checkout.home(options.site) / "runs"
    return make_data(platform, missing, runs) if missing else 0


def is_there(platform: Platform, folder: str) -> bool:
    """Whether a data set's folder is there, as far as the login node sees; sets appear whole or not at all."""
    if not backend_of(platform).commands_see_data:
        return False  # only a job sees that, and it does nothing if the set is there
    return transports.connect(platform).run(["test", "-d", folder]).exit_code == 0


def make_data(platform: Platform, missing: dict[tuple[str, str], str], runs: Path) -> int:
    """One job a data set. Returns 0 when all have succeeded, else 1 with each error printed."""
    run_id = time.strftime("prepare-%Y%m%d-%H%M%S")
    code = code_archive.build(ROOT / "models", runs / "archives")
    runner = Runner(runs, run_id, on_change=say)
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
    """The job that writes one data set, on one device of the platform."""
    layout = Layout(1, 1, platform.unit)
    test = f"prepare {benchmark} {size}"
    arguments = ("data", benchmark, "--size", size, "--data-dir", folder)
    spec = new_spec(platform, label=f"data-{benchmark}", test=test, layout=layout, run_id=run_id, arguments=arguments)
    # It is one process, which may use all threads.
    return replace(spec, ranks_per_device=1, threads_per_rank=None, archive=code)


def make_environment(platform: Platform, more: Sequence[str]) -> None:
    """A venv in work_dir, made on the login node, which has a network where compute nodes often have none.

    Raises RefusedError with what is missing, and its cure, where none can be made.
    """
    backend = backend_of(platform)
    if backend.file_keys.this_machine:
        raise RefusedError("--env is for other machines: here `make bench` sets up what it needs")
    key_and_image = backend.image_key(platform)
    if key_and_image is not None:
        raise RefusedError(
            "--env: jobs run in an image, where a venv of the host is of no use: name one that has torch, numpy, h5py "
            f"and Pillow as `{key_and_image[0]}: {{image: …}}` in {platform.source}"
        )
    transport = transports.connect(platform)
    ours = platform.python == "auto"
    modules = [f"module load {shlex.quote(module)} || exit\n" for module in platform.modules]
    start = "type module >/dev/null 2>&1 || . /etc/profile\n" if modules else ""
    script = (_LOOK + (_MAKE if ours else _SAY)).format(
        modules=start + "".join(modules),
        env=shlex.quote(f"{platform.work_dir}/env-{platform.name}"),
        python=shlex.quote("python3" if ours else platform.python),
        known='[ -x "$env/bin/python" ] && python=$env/bin/python' if ours else "",
        packages=PACKAGES,
        more=shlex.join(more),
    )
    done = transport.run(["bash", "-s"], input=script.encode(), timeout_s=ENV_LIMIT_S)
    said = (done.stdout + done.stderr).decode(errors="replace").strip()
    if done.exit_code:
        raise RefusedError(f"{platform.name}: no environment was made on {transport.where}: {said}")
    print(said)


def say(job: Job) -> None:
    print(f"{time.strftime('%H:%M:%S')} {job.spec.name} on {job.spec.platform}: {job.status}", flush=True)
