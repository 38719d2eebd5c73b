"""Says beforehand about how long `make bench` trains, from the rate of this machine's matrix products.

python -m models.estimate resnet50 gpt --size quick
"""

from __future__ import annotations

import argparse
from typing import Dict, List, Optional, Sequence

from models import accelerators, benchmarks
from models.accelerators import Accelerator
from models.command_line import parser
from models.errors import CommandError
from models.request import resolve
from models.time_limit import window_steps
from models.world import World

SHARE = 0.5  # of the products' FLOP/s, which a training reaches: 0.40 to 0.83 of eight trainings on a Zen 4
BESIDE_S = 10.0  # of a job, beside its steps: torch is imported, data are opened, checks are made


def estimate(names: Sequence[str], size: str, accelerator: Accelerator) -> Optional[str]:
    """Return the sentence on all trainings of these benchmarks, one after the other on one device.

    None where nobody knows: the device measures no products, or a window of this size is an epoch.

    Raises ImpossibleRequest for what cannot be trained.
    """
    rates: Dict[str, Optional[float]] = {}
    trainings_s: List[float] = []
    for benchmark, configuration in [(name, each) for name in names for each in benchmarks.load(name).CONFIGURATIONS]:
        words = ["train", benchmark, "--data-dir", "", "--size", size, "--configuration", configuration]
        module = benchmarks.load(benchmark)
        request = resolve(parser().parse_args(words), module, accelerator, World())
        if request.dtype not in rates:
            rates[request.dtype] = accelerator.product_flops(request.dtype)
        rate = rates[request.dtype]
        if not rate or not request.steps_per_window:
            return None
        flop = module.flop_per_sample(request.variant, request.shape)[1] * request.global_batch_size
        step_s = flop / (SHARE * rate)
        steps = request.warmup_steps + request.windows * window_steps(request, step_s)
        trainings_s.append(BESIDE_S + steps * step_s)
    reached = " and ".join(f"{rate / 1e9:,.0f} GFLOP/s in {dtype}" for dtype, rate in rates.items() if rate)
    return (
        f"{len(trainings_s)} trainings will take about {max(1, round(sum(trainings_s) / 60))} min on this machine: its "
        f"matrix products reach {reached}"
    )


def main() -> None:
    """Print the sentence. What cannot be trained is said by the training itself."""
    command = argparse.ArgumentParser(prog="python -m models.estimate", description=__doc__)
    command.add_argument("benchmarks", nargs="+")
    command.add_argument("--size", default="quick")
    options = command.parse_args()
    accelerator = accelerators.choose("auto")
    accelerator.select(World())
    try:
        told = estimate(options.benchmarks, options.size, accelerator)
    except CommandError:
        return
    if told:
        print(told, flush=True)


if __name__ == "__main__":
    main()
