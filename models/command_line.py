"""The command line of a job: `train` trains a benchmark and writes the wire, `data` writes synthetic data for it.

`node COMMAND…` runs another program, and writes what its node is (models/node.py, which models/__main__.py starts
alone). `vet` says whether a node is fit.
"""

from __future__ import annotations

import argparse
import atexit
import dataclasses
import os
import sys
import threading
from typing import Any, Callable, NoReturn, Optional, Sequence, Tuple

from models import (
    accelerators,
    benchmarks,
    host,  # noqa: F401 (before torch, because it records which cores this process may run on)
    vet,
)
from models.errors import CommandError, ImpossibleRequest, not_importable
from models.meter import Meter, Solo, Wire
from models.world import detect

CHOICES = {  # the first is the default
    "mode": ("overlap", "blocking"),
    "dtype": ("auto", "fp32", "tf32", "bf16", "fp16"),
    "channels-last": ("auto", "on", "off"),
    "backend": ("auto", "gloo", "nccl", "mpi"),
    "worker-start": ("auto", "thread", "fork", "forkserver", "spawn"),
    "cache": ("as-is", "cold", "warm"),
    "shard": ("auto", "on", "off"),
    "recompute": ("auto", "on", "off"),
}
CHOICE_HELP = {
    "shard": "gpt: each rank has a share of the model (FSDP2); auto: where it does not fit otherwise",
    "recompute": "gpt: the backward pass computes each block again; auto: where a sample does not fit otherwise",
}


class ArgumentParser(argparse.ArgumentParser):
    """Raises an impossible request (exit code 78) for a command line that it does not understand."""

    def error(self, message: str) -> NoReturn:
        raise ImpossibleRequest(f"{message}; for all options type: {self.prog} --help")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run one command; return its exit code (docs/wire.md)."""
    command_line = sys.argv[1:] if arguments is None else list(arguments)
    if command_line[:1] == ["vet"]:
        if command_line[1:2] == ["job"]:
            from models import vet_job  # imported late: a prolog needs nothing of it

            return vet_job.main(command_line[2:])
        return vet.main(command_line[1:])
    try:
        options = parser().parse_args(command_line)
        names = benchmarks.names()
        if options.benchmark not in names:
            raise ImpossibleRequest(f"unknown benchmark {options.benchmark!r}; there is {', '.join(names)}")
        if options.run is train:
            accelerators.refuse(options)
            if options.check:
                return 0
        return int(options.run(options))
    except ImportError as error:
        return report(not_importable(error), command_line)
    except CommandError as error:
        return report(error, command_line)


def report(error: CommandError, command_line: Sequence[str]) -> int:
    """Print an error; if the command is `train`, whose log is parsed, write the wire's last lines too."""
    print(f"error: {error}", file=sys.stderr, flush=True)
    if command_line[:1] == ["train"]:
        try:
            rank = detect(os.environ).rank
        except ImpossibleRequest:
            rank = 0
        meter = Meter(samples=1, wire=Wire(rank), group=Solo(rank), folder=None)
        meter.abort(error.exit_code, error.gate, str(error))
    return error.exit_code


def leave(exit_code: int) -> NoReturn:
    """End this process.

    A thread that still computes in torch while the interpreter ends aborts the process (exit code 134), and a complete
    run would count as failed. So if a daemon thread is alive, the process ends without the interpreter's own end.
    """
    atexit._run_exitfuncs()  # they give loader threads time to end
    others = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    if others and all(thread.daemon for thread in others):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)
    sys.exit(exit_code)


def train(options: argparse.Namespace) -> int:
    from models.train import main as train_benchmark  # imported late, because torch takes seconds to import

    return train_benchmark(options)


def data(options: argparse.Namespace) -> int:
    """Write a synthetic data set. A set that does not fit on the disk is refused before the first file is written."""
    from models.data.synthetic import generator_of, write_set  # imported late, because it needs numpy

    generator = generator_of(options.benchmark)
    if options.size not in generator.SAMPLES:
        raise ImpossibleRequest(
            f"there is no synthetic set of size {options.size}: use --size {'|'.join(generator.SAMPLES)}. Size full is "
            "the real data set, whose folder is given to `train` as --data-dir"
        )
    file_format = options.format or generator.FORMATS[0]
    if file_format not in generator.FORMATS:
        raise ImpossibleRequest(
            f"{options.benchmark} has no format {file_format!r}; use --format {'|'.join(generator.FORMATS)}"
        )
    recipe = generator.recipe(options.size, options.samples, options.seed, file_format)
    manifest = write_set(
        options.data_dir,
        dataclasses.replace(recipe, size=options.size),
        processes=options.processes,
        progress=_show_progress if sys.stderr.isatty() else None,
        on_space=print,
    )
    print(f"{options.data_dir}: {manifest}, {manifest.bytes / 1e6:,.1f} MB")
    return 0


def _show_progress(done: int, total: int) -> None:
    print(f"\r{done:,} of {total:,}", end="\n" if done == total else "", file=sys.stderr, flush=True)


# --- the options ------------------------------------------------------------------------------------------------------


def parser() -> ArgumentParser:
    top = ArgumentParser(prog="python -m models", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True, metavar="train | data", parser_class=ArgumentParser)
    _add_train(commands.add_parser("train", help="train a benchmark and measure it"))
    _add_data(commands.add_parser("data", help="write synthetic data for a benchmark, in its real format"))
    return top


def _add_train(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=train)
    command.add_argument(
        "--check", action="store_true", help="only check whether these options are understood and can be, without torch"
    )
    add = command.add_argument
    add("benchmark", help=", ".join(benchmarks.names()))
    add("--data-dir", required=True, metavar="D", help="folder of the data set")
    add("--configuration", default="tuned", metavar="C", help="gbs32 or tuned (default)")
    add("--size", default="quick", metavar="S", help="smoke, quick (default), subset or full")
    for name, choices in CHOICES.items():
        add(f"--{name}", default=choices[0], choices=choices, help=CHOICE_HELP.get(name))
    add(
        "--variant",
        metavar="V",
        help="form of the model; resnet50: v1.5 (default) or epcc; gpt: gpt2-124m, llama-1b, …",
    )
    add("--device", default="auto", metavar="D", help="auto, cpu, cuda (which is also ROCm), ipu or csx")
    add("--compile", action="store_true", help="use torch.compile; it runs before the measured windows")
    add("--workers", default="auto", metavar="N", help="loader processes or threads of each rank")
    add("--seed", type=_count, default=1, metavar="N")
    add("--measure-loader", action="store_true", help="csx: also measure the loader alone, by the vendor's benchmark")
    add("--no-augment", action="store_true", help="use the evaluation transform instead of random cuts")
    add("--skip-corrupt", action="store_true", help="skip samples that cannot be read, and count them")
    add(
        "--checkpoint",
        metavar="DIR",
        help="write model and optimiser to DIR after the windows, read them, and time both",
    )
    add(
        "--decompose",
        action="store_true",
        help="after the windows, train without loader and without exchange, and load without training: what bounds it?",
    )
    _add_amounts(command)
    inject = command.add_argument_group("faults on purpose, to test what the measurement shows")
    inject.add_argument("--inject-stall-s", type=_seconds, metavar="X", help="the loader sleeps X seconds in each step")
    inject.add_argument("--inject-copy-s", type=_seconds, metavar="X", help="the copy of each step is X seconds late")
    inject.add_argument("--inject-slow", type=_factor, metavar="X", help="each step computes X times as long")
    inject.add_argument("--inject-rank", type=_count, metavar="R", help="only on this rank")
    inject.add_argument(
        "--trace-losses", metavar="FILE", help="write the loss of each step to FILE, one JSON line each"
    )


def _add_amounts(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("amounts (by default the configuration and the size decide)")
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
        "--time-limit-s", type=_seconds, metavar="X", help="stop after the warm-up if the run would take longer"
    )
    group.add_argument("--expect-world-size", type=_natural, metavar="N", help="refuse any other number of ranks")
    group.add_argument("--replicas", type=_natural, metavar="N", help="ipu, csx: copies of the model in the whole job")
    group.add_argument("--devices-per-replica", type=_natural, metavar="N", help="ipu: a copy is spread over N of them")


def _add_data(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=data)
    add = command.add_argument
    add("benchmark", help=", ".join(benchmarks.names()))
    add("--data-dir", required=True, metavar="D", help="the folder to make; a complete set that is there stays")
    add("--size", default="quick", metavar="S", help="smoke, quick (default) or subset: decides how many samples")
    add(
        "--format",
        metavar="F",
        help="format of the files, where the benchmark has several; cosmoflow: tfrecord (default) or hdf5; gpt: gpt2 "
        "(default) or llama3",
    )
    add("--samples", type=_natural, metavar="N", help="write N samples instead")
    add("--processes", type=_natural, metavar="N", help="default: one for each core")
    add("--seed", type=_count, default=0, metavar="N")


def _shape(text: str) -> Tuple[int, ...]:
    sides = text.split("x")
    if not all(side.isdigit() and int(side) for side in sides):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape, as in 224x224")
    return tuple(map(int, sides))


def _number_type(convert: Callable[[str], Any], least: float, expected: str) -> Callable[[str], Any]:
    """Return an argparse type: a number of at least `least`, else an error that says what was expected."""

    def number(text: str) -> Any:
        try:
            value = convert(text)
        except ValueError:
            value = None
        if value is None or not least <= value < 2**63:
            raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")
        return value

    return number


_count = _number_type(int, 0, "a whole number of 0 or more")
_natural = _number_type(int, 1, "a whole number of 1 or more")
_seconds = _number_type(float, 0, "a number of seconds")
_factor = _number_type(float, 1, "a factor of 1 or more")
