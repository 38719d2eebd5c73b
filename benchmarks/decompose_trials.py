"""How often `train --decompose` names the right cause: ten causes, planted for real, over the four trainings.

    sudo python benchmarks/decompose_trials.py --trials 330 --seed 1 --out FOLDER [--only quota gpt/slow-copy]
    python benchmarks/decompose_trials.py --out FOLDER --table      # of the results that are there

Needs Linux with control groups of version 1, root, and two cores on which nothing else runs. Each trial is a fork of
this process, which has imported torch, and trains with another strength of the plant, batch, mode, number of workers
and seed. A step without the plant is measured first, once for each way to train, and the plant is drawn so that it
takes at least about a third of the step. A trial's line stands in FOLDER/results.jsonl at once, and a second start
leaves out what is there.

- slow-storage: the files lie on a disk of their own, which the kernel throttles for this job, and they are dropped from
  memory all the time. cold-cache: on the same disk, but what was read once stays in memory.
- few-workers: one worker, and each sample costs processor time in code that leaves Python's lock free.
- quota: that of a control group, of less than one core or of more than one.
- hog: another process, on one of the job's two cores. hog-beside: it copies memory on the core beside a one-core job.
- slow-rank, slow-copy: by --inject-slow and --inject-copy-s. slow-exchange: two ranks in a network of their own, whose
  bytes are limited. one-thread: OMP_NUM_THREADS=1 on two cores.

A trial is wrong if it names another cause than the planted one, a slow rank without its number and host, or a cold
cache without the time of the same samples again. Where it names none, the cause is "not known". Prints Markdown.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

import models.train  # noqa: F401 (before the forks: all trials run the code that was there at the beginning)
from models import benchmarks, command_line, host
from models.meter import Meter

EXPECTED = {
    "slow-storage": "storage",
    "cold-cache": "storage",
    "few-workers": "decoding",
    "quota": "quota",
    "hog": "neighbours",
    "hog-beside": "device",
    "slow-rank": "slow rank",
    "slow-copy": "copy",
    "slow-exchange": "communication",
    "one-thread": "threads",
    "none": "device",
}
# Samples of the set; local batches, of which one is drawn; bytes that one sample reads; and bytes of all gradients.
WORKLOADS = {
    "resnet50": (512, (2, 4), 115e3, 102.2e6),
    "cosmoflow": (512, (2, 4), 44e3, 19.1e6),
    "deepcam": (128, (1,), 1e6, 225.8e6),
    "gpt": (65536, (1, 2), 4096, 153.3e6),
}
VERDICTS = ("right", "not known", "wrong", "failed")
GROUP = "decompose-trials"
CGROUPS = Path("/sys/fs/cgroup")
LIMIT_S = 180  # of one trial
WINDOW_S = 1.5  # that the window of a trial takes, about
CLONE_NEWNS, CLONE_NEWNET, PR_SET_PDEATHSIG = 0x20000, 0x40000000, 1
LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass
class Trial:
    """One training, and what is done to it."""

    cause: str
    benchmark: str
    batch: int
    ranks: int = 1
    threads: int = 2
    options: list[str] = field(default_factory=list)
    plant: dict[str, Any] = field(default_factory=dict)


def draw(cause: str, benchmark: str, rng: random.Random, base_s: Callable[[Trial], float]) -> Trial:
    """Draw one trial. base_s: the seconds of a step of this training without a plant."""
    _, batches, sample_bytes, gradient_bytes = WORKLOADS[benchmark]
    trial = Trial(cause, benchmark, rng.choice(batches))
    plant, options = trial.plant, trial.options
    quota = rng.choice([rng.uniform(0.3, 0.65), rng.uniform(1.1, 1.4)])
    trial.ranks = 2 if cause in ("slow-rank", "slow-exchange") else 1
    if trial.ranks == 2 or cause in ("one-thread", "hog-beside") or (cause == "quota" and quota < 1):
        trial.threads = 1
    step_s = base_s(trial)
    times = 1.0  # how much longer a step gets
    if cause in ("slow-storage", "cold-cache"):
        times = rng.uniform(1.6, 2.6)
        plant.update(bytes_per_s=int(trial.batch * sample_bytes / (times * step_s)), dropped=cause == "slow-storage")
    elif cause == "few-workers":
        times = rng.uniform(2.2, 3.4)
        plant["decode_s"] = times * step_s / trial.batch
    elif cause == "quota":
        times = trial.threads / quota
        plant["quota"] = quota
    elif cause == "hog":
        times = 2.0
        plant.update(hog=rng.choice(("memory", "busy")), cores=[0, 1])
    elif cause == "hog-beside":
        plant.update(hog="memory", cores=[0])
    elif cause == "slow-rank":
        times, rank = (
            rng.uniform(2.6, 3.4),
            rng.randrange(2),
        )  # four fifths of what is lost: the exchange costs a lot here
        plant["rank"] = rank
        options += ["--inject-slow", f"{times:.3f}", "--inject-rank", str(rank)]
    elif cause == "slow-copy":
        times = 1 + rng.uniform(0.6, 1.8)
        options += ["--inject-copy-s", f"{(times - 1) * step_s:.4f}"]
    elif cause == "slow-exchange":
        times = 1 + rng.uniform(0.8, 1.8)
        plant["bits_per_s"] = int(2 * gradient_bytes * 8 / ((times - 1) * step_s))
    options += ["--cache", "cold"] if cause == "cold-cache" else []
    options += ["--workers", "1" if cause == "few-workers" else rng.choice("12")]
    options += ["--mode", rng.choice(("overlap", "blocking")), "--seed", str(rng.randrange(1, 10**6))]
    options += steps_options(trial, max(5, min(30, round(WINDOW_S / (times * step_s)))))
    return trial


def steps_options(trial: Trial, steps: int) -> list[str]:
    sizes = ["--size", "smoke", "--local-batch-size", str(trial.batch)]
    return [*sizes, "--warmup-steps", "2", "--windows", "1", "--steps-per-window", str(steps)]


# --- processes --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def forked(work: Callable[[], int | None], log: Path | None = None, is_rank: bool = False) -> Iterator[int]:
    """Fork a process that calls work(), and end it at last, with its group, which a rank shares with its parent."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # nothing goes on where this process is killed
            if not is_rank:
                os.setpgid(0, 0)
            if log:
                descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(descriptor, 1)
                os.dup2(descriptor, 2)
            code = work() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            (os.kill if is_rank else os.killpg)(process, signal.SIGKILL)
            os.waitpid(process, 0)


def ended(process: int) -> int:
    """Wait for a process; return its exit code, 124 where it runs past the limit."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    return 124


def train(trial: Trial, rank: int, folder: Path, data: Path, more: list[str]) -> int:
    """Train in this process, which was forked for it, as one of the ranks."""
    os.chdir(folder)
    plant = trial.plant
    if trial.ranks > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    if trial.threads == 1 and "quota" not in plant and "cores" not in plant:
        os.environ["OMP_NUM_THREADS"] = "1"  # which OpenMP, loaded before, does not read any more
        torch.set_num_threads(1)
    if "cores" in plant:
        os.sched_setaffinity(0, plant["cores"])
        host.AFFINITY = frozenset(plant["cores"])
    if "bytes_per_s" in plant:  # what is read before the loop would take minutes
        start = Meter.start
        Meter.start = lambda *values: join_group("blkio") or start(*values)  # type: ignore[assignment]
    if "decode_s" in plant:
        make_decoding_costly(trial.benchmark, plant["decode_s"])
    arguments = ["train", trial.benchmark, "--data-dir", str(data / trial.benchmark), *trial.options, *more]
    try:
        command_line.leave(command_line.main(arguments))
    except SystemExit as end:
        return int(end.code or 0)


def run(trial: Trial, folder: Path, disk: Disk, *more: str) -> tuple[int, Path]:
    """Train with the plant and these options; return the exit code and the log."""
    plant = trial.plant
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.txt"
    log.unlink(missing_ok=True)
    data = disk.mounted if "bytes_per_s" in plant else disk.folder
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def ranks() -> int:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
        if "quota" in plant:
            join_group("cpu")
        if "bits_per_s" in plant:
            limit_exchange(plant["bits_per_s"])
        if trial.ranks == 1:
            return train(trial, 0, folder, data, [*more])
        with forked(lambda: train(trial, 1, folder, data, [*more]), log, is_rank=True) as second:
            return train(trial, 0, folder, data, [*more]) or ended(second)

    with contextlib.ExitStack() as stack:
        if "quota" in plant:
            (CGROUPS / "cpu" / GROUP / "cpu.cfs_quota_us").write_text(str(int(plant["quota"] * 100_000)))
        if "hog" in plant:
            stack.enter_context(forked(lambda: hog(plant["hog"])))
        if "bytes_per_s" in plant:
            disk.drop(trial.benchmark)
            disk.throttle(plant["bytes_per_s"])
            if plant["dropped"]:
                stack.enter_context(forked(lambda: disk.keep_dropping(trial.benchmark)))
        process = stack.enter_context(forked(ranks, log))
        stack.callback(disk.throttle, 0)  # not at all: a process that waits for a disk ends only when it has read
        return ended(process), log


# --- the plants -------------------------------------------------------------------------------------------------------


class Disk:
    """The data sets in a folder, and once more on a disk of their own, which is throttled for the group.

    It is mounted in a name space of this process, so that the kernel unmounts it when this process ends.
    """

    def __init__(self, out: Path) -> None:
        self.folder, self.mounted, image = out / "data", out / "mounted", out / "disk.img"
        for name, (samples, *_) in WORKLOADS.items():
            arguments = [name, "--size", "smoke", "--samples", str(samples), "--data-dir", str(self.folder / name)]
            shell(sys.executable, "-m", "models", "data", *arguments)
        with image.open("wb") as file:
            file.truncate(1 << 30)
        shell("mkfs.ext4", "-q", "-F", str(image))
        self.mounted.mkdir(exist_ok=True)
        own_name_space(CLONE_NEWNS)
        shell("mount", "--make-rprivate", "/")
        shell("mount", "-o", "loop,noatime", str(image), str(self.mounted))
        shell("cp", "-r", f"{self.folder}/.", str(self.mounted))
        os.sync()
        device = self.mounted.stat().st_dev
        self._number = f"{os.major(device)}:{os.minor(device)}"
        Path(f"/sys/dev/block/{self._number}/queue/read_ahead_kb").write_text("4")  # a sample reads what it needs
        self._files = {name: [str(path) for path in (self.mounted / name).rglob("*.*")] for name in WORKLOADS}

    def throttle(self, bytes_per_s: int) -> None:
        (CGROUPS / "blkio" / GROUP / "blkio.throttle.read_bps_device").write_text(f"{self._number} {bytes_per_s}")

    def drop(self, name: str) -> None:
        for path in self._files[name]:
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)

    def keep_dropping(self, name: str) -> None:
        while True:
            self.drop(name)
            time.sleep(0.5)


def hog(kind: str) -> None:
    os.sched_setaffinity(0, {1})
    source, target = np.ones(1 << 24), np.ones(1 << 24)
    while True:
        np.copyto(target, source) if kind == "memory" else sum(range(10**5))


def limit_exchange(bits_per_s: int) -> None:
    """Give this process a network of its own, in which so much passes through the loopback."""
    own_name_space(CLONE_NEWNET)
    shell("ip", "link", "set", "lo", "up")
    shell(*f"tc qdisc add dev lo root tbf rate {bits_per_s} burst 1mb limit 64mb".split())


def make_decoding_costly(name: str, seconds: float) -> None:
    """Let each sample cost so much processor time more, in whichever thread or process it is read."""
    benchmark: Any = benchmarks.load(name)
    opened = benchmark.open_data
    method = "fill" if benchmark.LOADER == "thread" else "__getitem__"

    def open_data(*arguments: Any, **more: Any) -> Any:
        data = opened(*arguments, **more)
        read = getattr(type(data), method)
        text = bytes(1 << 16)

        def costly(*arguments: Any) -> Any:
            end_s = time.thread_time() + seconds
            while time.thread_time() < end_s:
                hashlib.sha256(text)
            return read(*arguments)

        setattr(type(data), method, costly)
        return data

    benchmark.open_data = open_data


def join_group(controller: str) -> None:
    (CGROUPS / controller / GROUP / "cgroup.procs").write_text(str(os.getpid()))


def own_name_space(kind: int) -> None:
    if LIBC.unshare(kind):
        raise OSError(ctypes.get_errno(), "this process gets no name space of its own; root is needed")


def shell(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).resolve().parents[1])


# --- results ----------------------------------------------------------------------------------------------------------


def last_value(log: Path, key: str) -> dict[str, Any]:
    """Return the last value that the wire has under a key; {} where it has none."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    found = [line for line in lines if line.startswith(":::MLLOG") and f'"key": "{key}"' in line]
    return json.loads(found[-1].partition(" ")[2])["value"] if found else {}


def step_of(log: Path) -> float | None:
    """Return the seconds of a step in the windows; None where there are none."""
    summary = last_value(log, "hpcml_summary")
    return summary["wall_s"] / summary["steps"] if summary.get("steps") else None


def verdict(cause: str, plant: dict[str, Any], said: dict[str, Any]) -> str:
    if "bound" not in said:
        return "failed"
    if said["bound"] is None:
        return "not known"
    also = {"slow-rank": f"rank {plant.get('rank')} on {socket.gethostname()}", "cold-cache": "samples again"}
    if cause == "hog-beside":  # it takes little here: what is told is that it is there
        return "right" if "others used" in said["text"] else "wrong"
    return "right" if said["bound"] == EXPECTED[cause] and also.get(cause, "") in said["text"] else "wrong"


def do(number: int, trial: Trial, base_s: float, out: Path, disk: Disk) -> dict[str, Any]:
    """Run one trial; return its line of the results."""
    folder = out / "trials" / f"{number:04}-{trial.cause}-{trial.benchmark}"
    began = time.monotonic()
    code, log = run(trial, folder, disk, "--decompose")
    seconds = time.monotonic() - began
    if trial.cause == "hog-beside":  # what it takes of a step depends on the machine at that moment
        alone = replace(trial, plant={"cores": trial.plant["cores"]})
        base_s = step_of(run(alone, folder / "without", disk)[1]) or base_s
    step_s, said = step_of(log), last_value(log, "hpcml_decomposition")
    share = round(1 - base_s / step_s, 3) if step_s else None
    result = {"number": number, **asdict(trial), "exit_code": code, "seconds": round(seconds, 1), "log": str(log)}
    result.update(step_s=step_s, base_s=base_s, planted_share=share, said=said)
    result["verdict"] = verdict(trial.cause, trial.plant, said)
    return {**result, "warnings": last_value(log, "hpcml_summary").get("warnings")}


class BaseSteps:
    """Seconds of a step without a plant, measured once for each way to train, and kept in the folder."""

    def __init__(self, out: Path, disk: Disk) -> None:
        self._file, self._folder, self._disk = out / "steps.json", out / "without", disk
        self._known: dict[str, float] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def __call__(self, trial: Trial) -> float:
        key = f"{trial.benchmark}-batch{trial.batch}-ranks{trial.ranks}-threads{trial.threads}"
        if key not in self._known:
            plain = replace(trial, options=steps_options(trial, 8), plant={})
            log = run(plain, self._folder / key, self._disk)[1]
            self._known[key] = step_of(log) or sys.exit(f"it does not train without a plant, see {log}")
            self._file.write_text(json.dumps(self._known, indent=1))
        return self._known[key]


def print_table(results: list[dict[str, Any]]) -> None:
    counts = Counter((result["cause"], result["benchmark"], result["verdict"]) for result in results)

    def cell(causes: list[str], names: list[str]) -> str:
        return " / ".join(str(sum(counts[c, n, word] for c in causes for n in names)) for word in VERDICTS)

    print(f"{' / '.join(VERDICTS)}; medians: the share of a step that the plant takes, and the seconds of a trial\n")
    print(f"| planted | expected | {' | '.join(WORKLOADS)} | all | share | seconds |")
    print("|---" * (len(WORKLOADS) + 5) + "|")
    for cause in [*EXPECTED, "all"]:
        causes = [*EXPECTED] if cause == "all" else [cause]
        cells = [cell(causes, names) for names in [*([name] for name in WORKLOADS), [*WORKLOADS]]]
        for key in ("planted_share", "seconds"):
            values = [r[key] for r in results if r["cause"] in causes and r[key] is not None]
            cells.append(f"{statistics.median(values or [0]):.2f}")
        print(f"| {cause} | {EXPECTED.get(cause, '')} | {' | '.join(cells)} |")
    for result in results:
        if result["verdict"] != "right":
            planted = f"{result['cause']} {json.dumps(result['plant'])}, {result['planted_share']} of a step"
            print(f"\n- {result['verdict']}: {result['benchmark']}, {planted}, {result['log']}")
            print(f"  {result['said'].get('text')}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=330, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--only", nargs="*", metavar="CAUSE", help="or BENCHMARK, or BENCHMARK/CAUSE")
    parser.add_argument("--table", action="store_true", help="train nothing, only print")
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    file = out / "results.jsonl"
    results = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    if options.table:
        print_table(results)
        return 0
    # A trial of DeepCAM takes as long as three others, so it has its turn in one round of four.
    rounds = [[*WORKLOADS], *[[name for name in WORKLOADS if name != "deepcam"]] * 3]
    pairs = [(cause, name) for names in rounds for cause in EXPECTED for name in names]
    pairs = [(c, n) for c, n in pairs if not options.only or {c, n, f"{n}/{c}"} & {*options.only}]
    done = {result["number"] for result in results}
    for name in WORKLOADS:
        benchmarks.load(name)  # before the forks
    with contextlib.ExitStack() as stack:
        lines = stack.enter_context(file.open("a", buffering=1))
        for group in (CGROUPS / "cpu" / GROUP, CGROUPS / "blkio" / GROUP):
            group.mkdir(exist_ok=True)  # that of a start that was killed is used again
            stack.callback(subprocess.call, ["rmdir", group])
        disk = Disk(out)
        base_s = BaseSteps(out, disk)
        for number in range(options.trials):
            if number in done:
                continue
            trial = draw(*pairs[number % len(pairs)], random.Random(f"{options.seed}-{number}"), base_s)
            without = base_s(replace(trial, threads=2) if trial.cause == "one-thread" else trial)
            result = do(number, trial, without, out, disk)
            results.append(result)
            lines.write(json.dumps(result) + "\n")
            print(number, trial.cause, trial.benchmark, result["verdict"], result["seconds"], "s", flush=True)
    print_table(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
