"""What is checked around the loop, so that a wrong number is not believed.

A failed check is a gate in the log (docs/measuring.md), and the run fails. A doubt is a warning beside the result.
"""

from __future__ import annotations

import hashlib
import platform
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import torch

from models import dtypes
from models.accelerators import Accelerator, EagerAccelerator
from models.benchmarks import large_model
from models.data.manifest import how_to_make
from models.errors import ImpossibleRequest, first_line
from models.meter import Meter
from models.ranks import Ranks
from models.sharding import is_split, own_part
from models.training_setup import TrainingSetup

# --- before the loop --------------------------------------------------------------------------------------------------


def check_devices_differ(ranks: Ranks, accelerator: Accelerator) -> None:
    """Raise ImpossibleRequest if two ranks use the same device. Matters where each rank sees only one device."""
    devices = [device for device in ranks.gather((platform.node(), accelerator.identity())) if device[1] is not None]
    for host, identity in devices:
        if devices.count((host, identity)) > 1:
            raise ImpossibleRequest(
                f"two ranks on {host} use the same accelerator; give each its own (srun --gpus-per-task=1), or let "
                "every rank see all of them"
            )


def attainable_flops(ranks: Ranks, accelerator: Accelerator, dtype: str) -> float:
    """Return what all ranks reach in plain kernels, all at the same time, in FLOP/s; 0 where it is not measured.

    It is measured before and after the windows, because a neighbour or a low clock in one of the two must not make it
    too low a bound.
    """
    ranks.barrier()
    rates = ranks.gather(accelerator.attainable_flops(dtype))
    return sum(rate or 0.0 for rate in rates)


def product_flops(ranks: Ranks, accelerator: Accelerator, dtype: str) -> float:
    """Return what all ranks reach in matrix products, all at the same time, in FLOP/s; 0 where it is not measured."""
    ranks.barrier()
    rates = ranks.gather(accelerator.product_flops(dtype))
    return sum(rate or 0.0 for rate in rates)


def multiplied_in(ranks: Ranks, setup: TrainingSetup) -> List[str]:
    """Find in which format each rank's device multiplies fp32 numbers (CPUs and GPUs): on rank 0 for hpcml_start.

    Return a warning where that is less than the dtype says. What autocast leaves in fp32 is no product.
    """
    if not isinstance(setup.accelerator, EagerAccelerator):
        return []
    setup.multiplied_in.update(dtypes.multiplied_in(setup.accelerator.device))
    dtype = setup.request.dtype
    worse = dtypes.LESS_THAN.get(dtype, ())
    for rank, formats in enumerate(ranks.gather(setup.multiplied_in)):
        less = " and ".join(f"a {name} in {found}" for name, found in formats.items() if found in worse)
        if less:
            why = "is ONEDNN_DEFAULT_FPMATH_MODE or NVIDIA_TF32_OVERRIDE set?"
            return [f"less than {dtype}: rank {rank} computes {less} ({why})"]
    return []


# --- the data: is it this benchmark's? --------------------------------------------------------------------------------

MOST_SAMPLES = 4  # of the first batch
# A sample in memory is at most this many times as large as its file. JPEG: 224 x 224 pixels in colour are 150,528
# bytes; Pillow packs the two photographs that come with scikit-learn 13 to 18 times at quality 75, 47 to 58 times at
# quality 10 and 83 to 92 times at quality 1. gzip packs CosmoFlow's counts 5.9 times (MLPerf Storage: 2.83 of 16.8 MB),
# and DeepCAM's floats not at all; deflate cannot pack anything more than 1,032 times, and reaches that on zeros.
MOST_PACKED = 100


class FirstInputs:
    """The first samples that a rank reads: channels last, on the device, not yet normalised."""

    def __init__(self) -> None:
        self.sample_bytes: Optional[int] = None
        self._deviations: Optional[torch.Tensor] = None

    def take(self, samples: torch.Tensor) -> None:
        """Take a batch, N x ... x channels. The host does not wait for the device."""
        self.sample_bytes = samples[0].numel() * samples.element_size()
        first = samples[:MOST_SAMPLES].float()
        if first.dim() == 2:  # a sequence of tokens is one channel
            first = first.unsqueeze(-1)
        self._deviations = first.flatten(1, -2).std(1)

    def deviations(self) -> Optional[List[float]]:
        """Return each channel's standard deviation within a sample, averaged over samples; None before `take`."""
        if self._deviations is None:
            return None
        return [float(value) for value in self._deviations.mean(0)]

    def problems(self, file_bytes: Optional[float], folder: str, make: str) -> Iterator[Tuple[str, str]]:
        """Yield gate and sentence for each sign that these samples are not a benchmark's.

        file_bytes: mean size of a sample's file; None: unknown. make: the command that writes a synthetic set.
        """
        advice = f"so {folder} is not this benchmark's data; give --data-dir another set, or make one: {make}"
        if self.sample_bytes and file_bytes is not None and file_bytes * MOST_PACKED < self.sample_bytes:
            sizes = f"a sample's file has {file_bytes:,.0f} bytes, and {self.sample_bytes:,} in memory"
            yield "data_bytes", f"{sizes}: no picture or field packs more than {MOST_PACKED} times, {advice}"
        if self._deviations is not None and float(self._deviations.max()) == 0:
            yield "input_varies", f"the first samples have the same value everywhere, {advice}"


def check_inputs(inputs: FirstInputs, setup: TrainingSetup, meter: Meter) -> None:
    """Check the gates data_bytes and input_varies."""
    folder = setup.options.data_dir
    make = how_to_make(setup.name, folder.rstrip("/") + "-synthetic")
    for gate, text in inputs.problems(setup.bytes_per_sample, folder, make):
        meter.wire.problem(gate, text)


def skipped_samples(ranks: Ranks, setup: TrainingSetup) -> List[str]:
    """Return a warning if --skip-corrupt has skipped samples, with their number on all ranks together."""
    skipped = sum(ranks.gather(setup.data.skipped if setup.request.skip_corrupt else 0))
    return [f"{skipped} corrupt samples were skipped"] if skipped else []


# --- the model: did it train? -----------------------------------------------------------------------------------------


def check_parameters_finite(model: Any, meter: Meter) -> None:
    """Check the gate parameters_finite. No loss shows the gradients of the last step, so this does."""
    names, parameters = zip(*model.named_parameters())
    are_finite = torch.stack([torch.isfinite(own_part(parameter)).all() for parameter in parameters]).tolist()
    wrong = [name for name, is_finite in zip(names, are_finite) if not is_finite]
    if wrong:
        text = f"{wrong[0]} is not finite after the last step, as {len(wrong)} of {len(names)} parameter tensors"
        meter.wire.problem("parameters_finite", f"{text}: the training went wrong, and so its rate says nothing")


def are_parameters_identical(model: Any, ranks: Ranks) -> Optional[bool]:
    """Tell whether the parameters are the same on all ranks, bit by bit; None where each is on one rank only."""
    if ranks.size == 1 or any(map(is_split, model.parameters())):
        return None
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return len(set(ranks.gather(digest.hexdigest()))) == 1


def compared_losses(losses: List[float], setup: TrainingSetup, meter: Meter) -> Dict[str, Dict[str, float]]:
    """Check the gate loss_curve; return what the summary says of it.

    losses: of each optimiser step, the mean over its batch.
    """
    large = large_model(setup.benchmark)
    if large is None:
        return {}
    curve = large.loss_curve(setup.request, setup.data)
    if curve is None:
        setup.warnings.append("--trace-losses: no curve of the definition has these settings; nothing was compared")
        return {}
    expected, tolerance = curve
    differences = [abs(loss - right) for loss, right in zip(losses, expected)]
    for step, difference in enumerate(differences):
        if not difference <= tolerance:
            text = f"the loss of step {step} is {losses[step]:.4f}, and {expected[step]:.4f} by the definition"
            meter.wire.problem("loss_curve", f"{text}: what was computed is not this model's training")
            break
    return {"loss_curve": {"steps": len(differences), "difference": max(differences, default=0.0)}}


def measured_checkpoint(step: Any, setup: TrainingSetup, ranks: Ranks, meter: Meter) -> Dict[str, Dict[str, Any]]:
    """Measure a checkpoint where --checkpoint asks for it, and check the gate of the same name. All ranks call this.

    Return what the summary says of it.
    """
    if setup.options.checkpoint is None:
        return {}
    from torch.distributed.checkpoint import CheckpointException  # imported late, because it takes a second

    from models import checkpoint

    try:
        measured = checkpoint.measure(setup.options.checkpoint, step.model, step.optimizer, ranks)
    except CheckpointException as error:  # the windows are measured
        first = next(iter(error.failures.values()))[0]
        meter.wire.problem("checkpoint", f"--checkpoint {setup.options.checkpoint}: {first_line(first)}")
        return {}
    if not measured["identical"]:
        meter.wire.problem("checkpoint", "the weights that were read back are not those that were written")
    return {"checkpoint": measured}


# --- the machine: was it slowed down? ---------------------------------------------------------------------------------


def shared_devices(
    ranks: Ranks, place: str, health_before: Optional[Mapping[str, Any]], health_after: Optional[Mapping[str, Any]]
) -> List[str]:
    """Return a warning if other processes are on the device of a rank, by both health reports. place: of this rank."""
    here = min((health or {}).get("processes") or 0 for health in (health_before, health_after))
    count, place = max(ranks.gather((here, place)))
    if count < 2:
        return []
    return [
        f"shared device: {count} processes are on the GPU of {place}, this job's own among them: what others do "
        "there counts as computing, and what they take as energy"
    ]


def throttled_ranks(ranks: Ranks, health: Optional[Mapping[str, object]]) -> Optional[Dict[str, object]]:
    """Return the ranks whose devices are slowed down now, with the reasons; one of them slows down all.

    None where no device reports it.
    """
    reasons_of_ranks = ranks.gather((health or {}).get("throttled"))
    if all(reasons is None for reasons in reasons_of_ranks):
        return None
    return {f"rank {rank}": reasons for rank, reasons in enumerate(reasons_of_ranks) if reasons}
