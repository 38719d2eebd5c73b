"""What runs inside the job: `train` trains a benchmark and writes the wire, `data` writes synthetic data for it."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import os
import sys
from typing import Any, Callable, NoReturn, Optional, Sequence, Tuple

from models import host  # noqa: F401 (before torch: it looks which cores are ours)
from models.errors import Impossible, JobError, not_importable
from models.meter import Meter, Solo, Wire
from models.world import detect

BENCHMARKS = ("resnet50", "cosmoflow", "deepcam")
GENERATORS = {  # of synthetic data; importing one takes numpy and no torch
    "resnet50": "models.data.synthetic_imagenet",
    "cosmoflow": "models.data.synthetic_cosmoflow",
    "deepcam": "models.data.synthetic_deepcam",
}
CHOICES = {
    "mode": ("overlap", "blocking"),
    "dtype": ("auto", "fp32", "tf32", "bf16", "fp16"),
    "channels-last": ("auto", "on", "off"),
    "backend": ("auto", "gloo", "nccl", "mpi"),
    "worker-start": ("auto", "thread", "fork", "forkserver", "spawn"),
    "cache": ("as-is", "cold", "warm"),
}


class Parser(argparse.ArgumentParser):
    """A command line that cannot be understood is a refused request (exit 78), and the log says so."""

    def error(self, message: str) -> NoReturn:
        raise Impossible(f"{message}; `{self.prog} --help` shows what there is")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run one command; returns its exit code (docs/wire.md)."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = parser().parse_args(words)
        if options.benchmark not in BENCHMARKS:
            raise Impossible(f"unknown benchmark {options.benchmark!r}; there is {', '.join(BENCHMARKS)}")
        if getattr(options, "check", False):
            return 0
        return int(options.run(options))
    except ImportError as error:
        return refused(not_importable(error), words)
    except JobError as error:
        return refused(error, words)


def refused(error: JobError, words: Sequence[str]) -> int:
    """Say it to people and, where a job's log is read, with the lines that end one."""
    print(f"error: {error}", file=sys.stderr, flush=True)
    if words[:1] == ["train"]:
        try:
            rank = detect(os.environ).rank
        except Impossible:
            rank = 0
        meter = Meter(samples=1, wire=Wire(rank), group=Solo(rank), folder=None)
        meter.abort(error.exit_code, error.gate, str(error))
    return error.exit_code


def train(options: argparse.Namespace) -> int:
    from models.train import main as run  # torch takes seconds to import

    return run(options)


def data(options: argparse.Namespace) -> int:
    """Write synthetic data; what does not fit on the disk is refused before the first file."""
    from models.data.synthetic import write_set

    generator = importlib.import_module(GENERATORS[options.benchmark])
    if options.size not in generator.SAMPLES:
        raise Impossible(
            f"there is no synthetic set of size {options.size}: full is the real one, give its folder to train "
            f"--data-dir; --size {'|'.join(generator.SAMPLES)} can be written"
        )
    file_format = options.format or generator.FORMATS[0]
    if file_format not in generator.FORMATS:
        raise Impossible(f"{options.benchmark} has no format {file_format!r}; --format {'|'.join(generator.FORMATS)}")
    recipe = generator.recipe(options.size, options.samples, options.seed, file_format)
    manifest = write_set(
        options.data_dir,
        dataclasses.replace(recipe, size=options.size),
        processes=options.processes,
        progress=_progress if sys.stderr.isatty() else None,
        say=print,
    )
    print(f"{options.data_dir}: {manifest}, {manifest.bytes / 1e6:,.1f} MB")
    return 0


def _progress(done: int, total: int) -> None:
    print(f"\r{done:,} of {total:,}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def parser() -> Parser:
    top = Parser(prog="python -m models", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True, metavar="train | data", parser_class=Parser)
    _add_train(commands.add_parser("train", help="train a benchmark and measure it"))
    _add_data(commands.add_parser("data", help="write synthetic data for a benchmark, in its real format"))
    return top


def _add_train(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=train)
    command.add_argument("--check", action="store_true", help="only say whether these options can be understood")
    add = command.add_argument
    add("benchmark", help=", ".join(BENCHMARKS))
    add("--data-dir", required=True, metavar="D", help="the data set")
    add("--configuration", default="tuned", metavar="C", help="gbs32 or tuned (default)")
    add("--size", default="quick", metavar="S", help="smoke, quick (default), subset or full")
    for name, choices in CHOICES.items():
        add(f"--{name}", default=choices[0], choices=choices)
    add("--variant", metavar="V", help="which form of the model; resnet50: v1.5 (default) or epcc")
    add("--device", default="auto", metavar="D", help="auto, cpu, or cuda, which is ROCm as well")
    add("--compile", action="store_true", help="torch.compile, outside the measured windows")
    add("--workers", default="auto", metavar="N", help="loader processes or threads of each rank")
    add("--seed", type=_count, default=1, metavar="N")
    add("--no-augment", action="store_true", help="the evaluation transform instead of random cuts")
    add("--skip-corrupt", action="store_true", help="pass over samples that cannot be read, and count them")
    _add_amounts(command)
    inject = command.add_argument_group("to check the checker")
    inject.add_argument("--inject-stall-s", type=_seconds, metavar="X", help="the loader sleeps so long in each step")
    inject.add_argument("--inject-slow", type=_factor, metavar="X", help="each step computes X times as long")
    inject.add_argument("--inject-rank", type=_count, metavar="R", help="on this rank only")
    inject.add_argument("--trace-losses", metavar="FILE", help="write the loss of each step there, one JSON line each")


def _add_amounts(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("how much (the configuration and the size decide what is not given)")
    group.add_argument("--global-batch-size", type=_natural, metavar="N", help="samples of one optimiser step")
    group.add_argument("--local-batch-size", type=_natural, metavar="N", help="samples of a micro-batch on one rank")
    group.add_argument(
        "--accumulation-steps", type=_natural, metavar="N", help="micro-batches of a step (default: as few as fit)"
    )
    group.add_argument("--warmup-steps", type=_count, metavar="N")
    group.add_argument("--windows", type=_natural, metavar="N")
    group.add_argument("--steps-per-window", type=_natural, metavar="N")
    group.add_argument("--shape", type=_shape, metavar="HxW", help="of a sample, as in 96x144 or 64x64x64")
    group.add_argument(
        "--time-limit-s", type=_seconds, metavar="X", help="refuse, after the warm-up, what takes longer"
    )
    group.add_argument("--expect-world-size", type=_natural, metavar="N", help="refuse another number of ranks")


def _add_data(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=data)
    add = command.add_argument
    add("benchmark", help=", ".join(BENCHMARKS))
    add("--data-dir", required=True, metavar="D", help="the folder to make; what is complete there stays")
    add("--size", default="quick", metavar="S", help="smoke, quick (default) or subset: how many samples")
    add(
        "--format",
        metavar="F",
        help="of the files, where the benchmark has several; cosmoflow: tfrecord (default) or hdf5",
    )
    add("--samples", type=_natural, metavar="N", help="so many samples instead")
    add("--processes", type=_natural, metavar="N", help="default: one a core")
    add("--seed", type=_count, default=0, metavar="N")


def _shape(text: str) -> Tuple[int, ...]:
    sides = text.split("x")
    if not all(side.isdigit() and int(side) for side in sides):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape, as in 224x224")
    return tuple(map(int, sides))


def _checked(read: Callable[[str], Any], least: float, what: str) -> Callable[[str], Any]:
    """A number of at least `least`, or an error that says what was expected."""

    def number(text: str) -> Any:
        try:
            value = read(text)
        except ValueError:
            value = None
        if value is None or not least <= value < 2**63:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return value

    return number


_count = _checked(int, 0, "a whole number of 0 or more")
_natural = _checked(int, 1, "a whole number of 1 or more")
_seconds = _checked(float, 0, "a number of seconds")
_factor = _checked(float, 1, "a factor of 1 or more")


if __name__ == "__main__":
    sys.exit(main())
