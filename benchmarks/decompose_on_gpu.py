"""Does `train --decompose` name causes that are planted on a machine with one GPU? Are the losses right there?

    python benchmarks/decompose_on_gpu.py --data FOLDER --out FOLDER [--only gpt resnet50/hog] [--seconds 120]

FOLDER of the data has a set for each benchmark, as `python -m models data resnet50 --data-dir FOLDER/resnet50` writes
it. All trials run in one process, so that cuDNN chooses its kernels once. The first trial of a benchmark has no plant;
its step, or --step-s, says how strong the others are.

- few-workers: two of them. costly: each sample costs processor time. slow-storage: a file that is not in memory comes
  late. slow-link: each batch is copied many times. slow-copy, slow, stall: by --inject-copy-s, --inject-slow and
  --inject-stall-s. hog: as many busy processes as cores. gpu-hog: another process computes on the same GPU.

A line of each trial stands in --out/results.jsonl, its log beside that.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from benchmarks.decompose_trials import last_value, step_of
from models import benchmarks, command_line, train
from models.accelerators.cuda import Cuda
from models.data import pagecache

HOG = """
print("ready", flush=True)
while True:
    sum(range(10**5))
"""
GPU_HOG = """
import torch
matrix = torch.rand((8192, 8192), device="cuda").to(torch.bfloat16)
torch.mm(matrix, matrix).sum().item()
print("ready", flush=True)
while True:
    torch.mm(matrix, matrix).sum().item()
"""
BATCHES = {"resnet50": 256, "cosmoflow": 64, "deepcam": 4, "gpt": 64}
COPIES = {"resnet50": 150, "cosmoflow": 14, "deepcam": 30}  # of each batch, where the link is slow
WORKERS = max(1, min(16, (os.cpu_count() or 2) - 1))  # as the suite has them beside a GPU
WARMUPS = {"cosmoflow": 10}  # until there is page-locked memory for all batches, of a GiB each
TIMES = 2.5  # how much longer than a step the loader takes, where it is slow
CURVE = ["--variant", "gpt2-124m", "--global-batch-size", "2", "--warmup-steps", "0", "--windows", "1"]
CURVE += ["--steps-per-window", "6", "--trace-losses", "losses.jsonl"]
Plant = Callable[[str, float], AbstractContextManager[Any]]  # of the benchmark's name and the seconds of a step


def each_sample(name: str, before: Callable[[bytes], None]) -> AbstractContextManager[Any]:
    """Call `before` with a sample's file where it is read, in whichever thread or process."""
    benchmark: Any = benchmarks.load(name)
    opened = benchmark.open_data
    method = "fill" if benchmark.LOADER == "thread" else "__getitem__"
    undo = contextlib.ExitStack()
    undo.callback(setattr, benchmark, "open_data", opened)

    def open_data(*arguments: Any, **more: Any) -> Any:
        data = opened(*arguments, **more)
        kind: Any = type(data)
        read = getattr(kind, method)

        def late(self: Any, key: Any, *more: Any) -> Any:
            before(os.fsencode(self.path(key if method == "fill" else key[1])))
            return read(self, key, *more)

        setattr(kind, method, late)
        undo.callback(setattr, kind, method, read)
        return data

    benchmark.open_data = open_data
    return undo


def costly(name: str, step_s: float) -> AbstractContextManager[Any]:
    text = bytes(1 << 16)

    def spin(path: bytes) -> None:
        end_s = time.thread_time() + TIMES * step_s * WORKERS / BATCHES[name]
        while time.thread_time() < end_s:
            hashlib.sha256(text)

    return each_sample(name, spin)


def slow_storage(name: str, step_s: float) -> AbstractContextManager[Any]:
    def wait(path: bytes) -> None:
        inside, size = pagecache.resident([path]) or (0, 1)
        if inside < size / 2:
            time.sleep(TIMES * step_s * WORKERS / BATCHES[name])

    return each_sample(name, wait)


@contextlib.contextmanager
def slow_link(name: str, step_s: float) -> Iterator[None]:
    of_class: Any = Cuda
    ahead, now = of_class._copies, of_class.to_device

    def late_ahead(self: Any, batches: Any) -> Iterator[Any]:
        stream = torch.cuda.Stream(self.device)
        for batch in batches:
            with torch.cuda.stream(stream):
                for _ in range(COPIES[name]):
                    copies = [part.to(self.device, non_blocking=True) for part in batch]
            yield copies, stream.record_event()

    def late_now(self: Any, batch: Any) -> Any:
        for _ in range(COPIES[name] - 1 if batch[0].device.type == "cpu" else 0):
            now(self, batch)
        return now(self, batch)

    of_class._copies, of_class.to_device = late_ahead, late_now
    try:
        yield
    finally:
        of_class._copies, of_class.to_device = ahead, now


@contextlib.contextmanager
def beside(*programs: str) -> Iterator[None]:
    """Run other programs meanwhile, from their first line of output on."""
    processes = [subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) for text in programs]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@dataclass
class Trial:
    """What is planted, which cause must be named, and how it is done: the plant, and options, which see the step."""

    cause: str
    expected: str | None = "device"
    plant: Plant = lambda name, step_s: contextlib.nullcontext()
    options: Callable[[float], list[str]] = lambda step_s: []
    mode: str = "overlap"
    steps: int = 12
    windows: int = 1
    decomposes: bool = True

    def command(self, name: str, data: Path, device: str, size: str, step_s: float) -> list[str]:
        words = ["train", name, "--data-dir", str(data / name), "--device", device, "--size", size]
        if self.decomposes:
            words += ["--decompose", "--mode", self.mode, "--warmup-steps", str(WARMUPS.get(name, 3))]
            words += ["--windows", str(self.windows), "--steps-per-window", str(self.steps)]
            words += ["--local-batch-size", str(BATCHES[name])]
        return words + self.options(step_s)


def none(steps: int, windows: int, mode: str = "overlap") -> Trial:
    return Trial("none", steps=steps, windows=windows, mode=mode)


def slow_copy(mode: str = "overlap", steps: int = 12) -> Trial:
    return Trial("slow-copy", "copy", mode=mode, steps=steps, options=lambda s: ["--inject-copy-s", f"{1.2 * s:.4f}"])


FEW = Trial("few-workers", "decoding", options=lambda s: ["--workers", "2"], steps=8)
COSTLY = Trial("costly", "decoding", costly, steps=5)
COLD = Trial("slow-storage", "storage", slow_storage, lambda s: ["--cache", "cold"], steps=8)
LINK = Trial("slow-link", "copy", slow_link)
TRIALS = {
    "resnet50": [
        none(80, 3),
        slow_copy(),
        FEW,
        COLD,
        Trial("hog", "neighbours", lambda name, s: beside(*[HOG] * (os.cpu_count() or 1)), steps=15),
        none(20, 1, "blocking"),
        LINK,
        Trial("slow", options=lambda s: ["--inject-slow", "2"]),
        Trial("gpu-hog", plant=lambda name, s: beside(GPU_HOG), steps=15),
        Trial("costly", "decoding", costly, mode="blocking", steps=8),
        slow_copy("blocking"),
        Trial("slow-link", "copy", slow_link, mode="blocking"),
    ],
    "cosmoflow": [none(20, 2), none(12, 1, "blocking"), LINK, slow_copy(steps=8), FEW],
    "deepcam": [none(25, 2), COLD, none(12, 1, "blocking"), LINK, COSTLY],
    "gpt": [
        none(30, 3),
        Trial("curve-fp32", None, options=lambda s: [*CURVE, "--dtype", "fp32"], decomposes=False),
        Trial("curve-bf16", None, options=lambda s: [*CURVE, "--dtype", "bf16"], decomposes=False),
        COSTLY,
        slow_copy(),
        Trial("stall", None, options=lambda s: ["--inject-stall-s", f"{1.5 * s:.4f}"], steps=8),
        Trial("one-sample", options=lambda s: ["--local-batch-size", "1"], steps=50),
        none(12, 1, "blocking"),
    ],
}


@contextlib.contextmanager
def written_to(log: Path) -> Iterator[None]:
    """What this process writes goes to the log, and it works in the log's folder."""
    kept = [os.dup(1), os.dup(2)]
    here = Path.cwd()
    sys.stdout.flush()
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(log.parent)
    try:
        yield
    finally:
        sys.stdout.flush()
        for number, copy in enumerate(kept, 1):
            os.dup2(copy, number)
            os.close(copy)
        os.chdir(here)


def do(name: str, trial: Trial, words: list[str], folder: Path, step_s: float) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log.txt"
    began = time.monotonic()
    code: Any = None
    with written_to(log):
        try:
            with trial.plant(name, step_s):
                code = train.main(command_line.parser().parse_args(words))
        except Exception:
            traceback.print_exc()
    gc.collect()
    torch.cuda.empty_cache()
    said, summary = last_value(log, "hpcml_decomposition"), last_value(log, "hpcml_summary")
    verdict = "right" if said.get("bound") == trial.expected else "not known" if not said.get("bound") else "wrong"
    facts = {"benchmark": name, "cause": trial.cause, "mode": trial.mode, "expected": trial.expected, "options": words}
    result = {**facts, "code": code, "seconds": round(time.monotonic() - began, 1), "base_s": step_s}
    return {**result, "verdict": verdict if code == 0 else "failed", "said": said, "summary": summary}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--only", nargs="*", default=[*TRIALS], metavar="BENCHMARK[/CAUSE[/MODE]]")
    parser.add_argument("--seconds", type=float, default=3600.0, help="after them no trial begins")
    parser.add_argument("--step-s", type=float, default=0.1)
    parser.add_argument("--device", default="cuda", help="cpu with --size smoke: a rehearsal, which proves nothing")
    parser.add_argument("--size", default="quick")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    end_s = time.monotonic() + options.seconds
    if options.device == "cpu":
        BATCHES.update(dict.fromkeys(BATCHES, 4))
    for name, trials in TRIALS.items():
        step_s = options.step_s
        for trial in trials:
            keys = {name, f"{name}/{trial.cause}", f"{name}/{trial.cause}/{trial.mode}"}
            if not keys & {*options.only} or time.monotonic() > end_s:
                continue
            words = trial.command(name, options.data.resolve(), options.device, options.size, step_s)
            folder = options.out / "logs" / f"{name}-{trial.cause}-{trial.mode}"
            result = do(name, trial, words, folder, step_s)
            if trial is trials[0]:
                step_s = step_of(folder / "log.txt") or step_s
            with (options.out / "results.jsonl").open("a") as file:
                file.write(json.dumps(result) + "\n")
            said, summary = result["said"], result["summary"]
            print(f"{folder.name}: {result['verdict']}, {result['seconds']} s, gap {said.get('gap')}", flush=True)
            rate = f"{summary.get('effective_throughput') or 0:.1f} samples/s"
            print(f"  {said.get('text')}\n  {rate}, {summary.get('energy')}, {summary.get('warnings')}", flush=True)
    sys.stdout.flush()
    os._exit(0)  # daemon threads of loaders


if __name__ == "__main__":
    sys.exit(main())
