"""Do Cerebras' package and the plain loop compute the same losses? And does its compiler's front end take our networks?

    python benchmarks/csx_losses.py --python env-csx/bin/python
    python benchmarks/csx_losses.py --python env-csx/bin/python --lower resnet50 cosmoflow

PYTHON has cerebras-pytorch (docs/accelerators.md says how to install it). No CS system is needed. The first form trains
each network for ten steps, once as `--device cpu` does and once through models/steps/csx.py on the package's CPU
backend, on the same samples, with the first rates of a run of a thousand steps. ResNet-50 is in double precision:
in fp32 the rounding of its weights alone changes its loss by some per cent within five steps, in torch's own loop, too.

The second form traces the training step on the package's CSX backend and lowers it to the package's intermediate
language with the program that a real run calls. It says nothing about the compiler that runs on a cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ("resnet50", "cosmoflow")
STEPS = 10
IN_DOUBLE = ("resnet50",)
OF_RUN = ["--warmup-steps", "2", "--windows", "1", "--steps-per-window", "998"]
LIMIT = 1e-4


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmarks", nargs="*", default=BENCHMARKS, metavar="BENCHMARK")
    parser.add_argument("--python", required=True, metavar="PATH", help="one that has cerebras-pytorch")
    parser.add_argument("--lower", action="store_true", help="only lower the step, by the compiler's front end")
    options = parser.parse_args(arguments)
    wrong = []
    for benchmark in options.benchmarks:
        with tempfile.TemporaryDirectory() as folder:
            if options.lower:
                print(f"{benchmark}: {run_there(options.python, benchmark, 'lower', folder)}", flush=True)
                continue
            plain = run_there(options.python, benchmark, "cpu", folder)
            theirs = run_there(options.python, benchmark, "csx", folder)
        print(f"{benchmark}, {'float64' if benchmark in IN_DOUBLE else 'float32'}")
        print(f"{'':>10}  {'--device cpu':>14}  {'--device csx':>14}")
        for step, losses in enumerate(zip(plain, theirs, strict=True)):
            print(f"{'step ' + str(step):>10}  {losses[0]:>14.8f}  {losses[1]:>14.8f}")
        largest = max(abs(one - other) for one, other in zip(plain, theirs, strict=True))
        print(f"the largest difference is {largest:.2g}; the limit is {LIMIT:g}\n")
        if not largest <= LIMIT:
            wrong.append(benchmark)
    return 1 if wrong else 0


def run_there(python: str, benchmark: str, what: str, folder: str) -> Any:
    """Run this file in the other Python; return what it found."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "HPC_ML_BENCH_CSX_BACKEND": "CPU"}
    command = [str(Path(python).absolute()), str(Path(__file__).resolve()), "--here", benchmark, what, folder]
    result = subprocess.run(command, env=environ, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode:
        sys.exit(f"{benchmark}, {what}: exit code {result.returncode}; its error stands above")
    return json.loads(result.stdout.splitlines()[-1])


# --- in the other Python ----------------------------------------------------------------------------------------------


def here(benchmark: str, what: str, folder: str) -> None:
    from models.command_line import main as models_main
    from models.command_line import parser

    data = f"{folder}/data"
    with contextlib.redirect_stdout(sys.stderr):
        models_main(["data", benchmark, "--size", "smoke", "--data-dir", data, "--processes", "1"])
        size = ["--configuration", "gbs32", "--size", "smoke", "--data-dir", data, *OF_RUN]
        found = {"cpu": plain_losses, "csx": their_losses, "lower": lowered}[what](parser(), benchmark, size)
    print(json.dumps(found))


def plain_losses(parser: Any, benchmark: str, size: Sequence[str]) -> list[float]:
    return losses_on("cpu", parser, benchmark, size)


def their_losses(parser: Any, benchmark: str, size: Sequence[str]) -> list[float]:
    return losses_on("csx", parser, benchmark, size)


def losses_on(device: str, parser: Any, benchmark: str, size: Sequence[str]) -> list[float]:
    from models.checks import FirstInputs
    from models.meter import Meter
    from models.steps import make_step

    step = make_step(set_up_for(parser, benchmark, device, size), Meter(samples=1, folder=None), FirstInputs())
    return [float(step(number, batch)) for number, batch in zip(range(STEPS), step.batches(), strict=False)]


def lowered(parser: Any, benchmark: str, size: Sequence[str]) -> str:
    """Trace and lower one step for a CS system, without a cluster; return how large the result is."""
    from models.checks import FirstInputs
    from models.meter import Meter
    from models.steps.csx import CsxStep

    class LoweredOnly(CsxStep):
        def open_backend(self) -> Any:
            return self.cstorch.backend("CSX", validate_only=True, artifact_dir="lowered")

    setup = set_up_for(parser, benchmark, "csx", [*size, "--dtype", "bf16"])
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    accelerator = setup.accelerator
    accelerator.on_wafer = True
    step = LoweredOnly(accelerator, setup, Meter(samples=1, folder=None), FirstInputs())
    with contextlib.suppress(StopIteration):  # the package ends such a run after one step
        step(0, next(step.batches()))
    (text,) = (path.read_text() for path in Path("lowered/executors").glob("0*/cirh.mlir"))
    operations = sum(line.lstrip().startswith("%") for line in text.splitlines())
    return f"{operations} operations of {accelerator.cstorch.__version__}'s intermediate language"


def set_up_for(parser: Any, benchmark: str, device: str, size: Sequence[str]) -> Any:
    """Return the setup of a run. Double precision becomes what torch and models/ mean by fp32 in this process."""
    import torch

    from models.dtypes import TORCH_DTYPES
    from models.training_setup import set_up
    from models.world import World

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    if benchmark in IN_DOUBLE and "bf16" not in size:
        torch.set_default_dtype(torch.float64)
        TORCH_DTYPES["fp32"] = torch.float64
    return set_up(
        parser.parse_args(["train", benchmark, "--device", device, *size, "--trace-losses", "losses"]), World(), 0.0
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        here(*sys.argv[2:])
    else:
        sys.exit(main())
