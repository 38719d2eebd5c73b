"""The training step on Cerebras CS systems, and the input function that the cluster's worker nodes call.

The step is traced once and compiled to one program. Worker nodes read the samples and stream them to the systems; this
process reads the first batch only, from which the program's shapes follow. On the package's CPU backend, which is for
trials, this process does everything. Files in brackets are those of cerebras-pytorch 2.10.0.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
from typing import Any, Callable, Iterable, Iterator, Optional, Tuple

import torch

from models.abort import OUT_OF_MEMORY
from models.accelerators.csx import Csx
from models.accelerators.csx_schedule import follow
from models.benchmarks import load
from models.data.sampling import StepSampler
from models.eager_step import TORCH_DTYPES, dropout_seed
from models.errors import CompileFailed, DeviceOutOfMemory, ImpossibleRequest, MachineFailed, with_message
from models.loaders import loader_of
from models.meter import Meter
from models.request import Request
from models.training_setup import TrainingSetup, make_sampler

FIRST_SAMPLES = 4  # as many as the checks of the inputs look at
# What errors without a class of their own say (appliance/utils/traceback.py, pytorch/backend/ltc_backend.py).
NOT_COMPILED = ("owering failed", "MLIR Compile Lowering", "Cerebras constraints were violated")


class CsxStep:
    """Model, optimiser and executor; a call trains on one global batch (models.accelerators.TrainingStep)."""

    compile_s: Optional[float] = None
    compile_cache: Optional[str] = None  # the cluster does not say whether it found a compiled program

    def __init__(
        self,
        accelerator: Csx,
        setup: TrainingSetup,
        rate: Callable[[int], float],
        meter: Meter,
        take_first: Callable[[Any], None],
    ) -> None:
        request = setup.request
        benchmark = setup.benchmark
        cstorch = accelerator.cstorch
        self.accelerator = accelerator
        self.setup = setup
        self.meter = meter
        self.warm: Tuple[float, float] = (0.0, 0.0)  # samples and seconds, by the package, when the warm-up ended
        self.count = self.warm  # and after the last step
        self.loss = float("nan")

        # The checks look at the first samples as they are in the files. What the executor yields is prepared.
        keys = next(iter(make_sampler(request, len(setup.data), rank=0)))[:FIRST_SAMPLES]
        take_first(torch.utils.data.default_collate([setup.data[key] for key in keys])[0])

        # The model has the weights that it has on every other device. `compile` moves them to the systems.
        torch.manual_seed(request.seed)
        self.model = benchmark.build(request.variant, request.shape)
        forward = cstorch.compile(self.model, accelerator.engine)
        optimizer = package_optimizer(cstorch, benchmark.make_optimizer(self.model))

        # One step more than the loop makes: it lets the executor end by itself, outside of the last window.
        steps = request.steps + 1
        schedule = follow(cstorch, optimizer, rate, steps)
        read = functools.partial(read_batches, setup.name, setup.options.data_dir, request)
        if setup.options.measure_loader:
            meter.beside["loader_throughput"] = loader_alone(read, request.steps_per_window)
        self.executor = cstorch.utils.data.DataExecutor(cstorch.utils.data.DataLoader(read), num_steps=steps)

        @cstorch.trace  # type: ignore[untyped-decorator]
        def train(samples: Any, targets: Any) -> Any:
            labels = targets if targets.is_floating_point() else targets.long()
            with contextlib.nullcontext() if request.dtype == "fp32" else cstorch.amp.autocast():
                loss = benchmark.criterion(forward(samples), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
            return loss

        @cstorch.step_closure  # type: ignore[untyped-decorator]
        def keep(loss: Any) -> None:
            self.loss = float(loss)

        self._train = train
        self._keep = keep
        self._stream = iter(self.executor)
        self._batch: Any = None  # the one that comes next

    def batches(self) -> Iterator[Any]:
        with errors_of_cluster():
            self._batch = next(self._stream)
        while True:
            yield self._batch

    def __call__(self, number: int, batch: Any) -> float:
        """Train and wait for the loss.

        The executor ends a step, with what was to be done after it, when it is asked for the next batch
        (pytorch/utils/data/data_executor.py). In the first step that is when it compiles.
        """
        if not self.accelerator.on_wafer:  # the same dropout as in the loop of CPUs; a CS system draws its own
            torch.default_generator.manual_seed(dropout_seed(self.setup, number, 0))
        with errors_of_cluster():
            self._keep(self._train(*batch))
            self._batch = next(self._stream)
            rates = self.executor.profiler.rate_tracker
            self.count = (rates.total_samples, rates.total_time)
        if number == 0:
            self.compile_s = compile_seconds(self.accelerator.engine)
        if number + 1 == self.setup.request.warmup_steps:
            self.warm = self.count
        return self.loss

    def trained(self) -> Any:
        """End the executor with its last step, and return a copy of the model, with the weights that the cluster has.

        Report the package's own rates, of the windows and of the whole run.
        """
        rates = self.executor.profiler.rate_tracker
        samples, seconds = self.count[0] - self.warm[0], self.count[1] - self.warm[1]
        self.meter.beside["vendor_throughput"] = {
            "windows": samples / seconds if seconds > 0 else None,
            "rate": rates.rate,
            "global_rate": rates.global_rate,
        }
        with errors_of_cluster():
            if self.executor.on_final_iteration:
                self._train(*self._batch)
                next(self._stream, None)
            self._stream.close()
            to_cpu = self.accelerator.engine.to_cpu
            weights = {name: to_cpu(tensor).to("cpu") for name, tensor in self.model.state_dict().items()}
        model = self.setup.benchmark.build(self.setup.request.variant, self.setup.request.shape)
        model.load_state_dict(weights)
        return model


# --- what is asked of the package -------------------------------------------------------------------------------------


def refuse(setup: TrainingSetup, on_wafer: bool) -> None:
    """Raise ImpossibleRequest for what a CS system cannot do or cannot show."""
    request = setup.request
    faults = request.inject or {}
    reasons = {
        "--mode blocking": request.mode == "blocking" and "samples are always streamed while the system computes",
        "--compile": request.compile and "a CS system compiles anyway",
        "--skip-corrupt": request.skip_corrupt and "the nodes that read the samples do not say what they skipped",
        "--inject-stall-s": "stall_s" in faults and "the nodes that read the samples are not ours to delay",
        "--inject-copy-s": "copy_s" in faults and "this process copies nothing to the system",
        f"--cache {request.cache}": on_wafer
        and request.cache != "as-is"
        and "the memory of the nodes that read the samples cannot be seen from here",
        "--warmup-steps 0": not request.warmup_steps and "the first step compiles",
        "this size": on_wafer and request.window_s and "a run must know its steps before it starts",
        f"--replicas {request.replicas}": not on_wafer and request.replicas > 1 and "the CPU backend has one",
        f"--accumulation-steps {request.accumulation_steps}": not on_wafer
        and request.accumulation_steps > 1
        and "the CPU backend trains on a whole batch at once",
    }
    advice = {"--warmup-steps 0": "use at least 1", "this size": "give --steps-per-window"}
    for option, reason in reasons.items():
        if reason:
            raise ImpossibleRequest(f"{option} on csx: {reason}; {advice.get(option, 'leave it out')}")


def compile_seconds(engine: Any) -> Optional[float]:
    """Return how long the cluster compiled, by the package's own tracker; None where nothing was compiled.

    (appliance/utils/tracker.py; pytorch/core/appliance.py starts the entry `compile`.)
    """
    stats = engine._impl.appliance_tracker.profile_stats("compile")
    return float(stats.total) if stats.count else None


def package_optimizer(cstorch: Any, optimizer: Any) -> Any:
    """Return the package's optimiser of the same name, with the same groups of parameters.

    Raises ImpossibleRequest where it lacks one, or one with these values.
    """
    name = type(optimizer).__name__
    family = getattr(cstorch.optim, name, None)
    if family is None or not type(optimizer).__module__.startswith("torch.optim"):
        raise ImpossibleRequest(
            f"cerebras.pytorch has no {type(optimizer).__module__}.{name}, this benchmark's optimiser; use a GPU"
        )
    known = set(inspect.signature(family.__init__).parameters)
    groups = []
    for group in optimizer.param_groups:
        unknown = [key for key, value in group.items() if key not in known and value not in (None, False)]
        if unknown:
            raise ImpossibleRequest(f"cerebras.pytorch's {name} knows no {unknown[0]}; use a GPU for this benchmark")
        groups.append({key: value for key, value in group.items() if key in known})
    return family(groups, **{key: value for key, value in optimizer.defaults.items() if key in known})


@contextlib.contextmanager
def errors_of_cluster() -> Iterator[None]:
    """Give the errors of the compiler, of the device's memory and of the cluster their exit codes, with their text."""
    errors = importlib.import_module("cerebras.appliance.errors")
    rpc_error = importlib.import_module("grpc").RpcError
    try:
        yield
    except errors.ApplianceVersionError as error:
        raise ImpossibleRequest(f"the cluster's software is of another release: {first_line(error)}") from error
    except errors.ApplianceResourceExhausted as error:
        sentence = f"the cluster's memory does not hold this: {first_line(error)}"
        raise DeviceOutOfMemory(with_message(sentence, error)) from error
    except (errors.ApplianceCompilationError, RuntimeError) as error:
        text = str(error)
        if isinstance(error, RuntimeError) and not any(sign in text for sign in NOT_COMPILED):
            raise
        if any(sign in text for sign in OUT_OF_MEMORY):
            sentence = f"the compiled program does not fit: {first_line(error)}"
            raise DeviceOutOfMemory(with_message(sentence, error)) from error
        raise CompileFailed(with_message(f"Cerebras' compiler: {first_line(error)}", error)) from error
    except (errors.ApplianceClientException, rpc_error) as error:
        sentence = f"the job on the cluster failed ({type(error).__name__}): {first_line(error)}"
        raise MachineFailed(with_message(sentence, error)) from error
    except Exception as error:
        if type(error) is not Exception:
            raise
        # So the package says that the cluster does not answer (appliance/cluster/client.py: validate_connectivity).
        raise MachineFailed(with_message(f"the cluster: {first_line(error)}", error)) from error


def first_line(error: Exception) -> str:
    return (str(error).strip() or "no text").splitlines()[0]


# --- samples ----------------------------------------------------------------------------------------------------------


class PreparedBatches:
    """The batches of a benchmark, ready for the model: prepared samples, and labels of 32 bits, as the package's own.

    On a worker node, its share of each batch, so that all nodes together read what one process reads elsewhere.
    """

    def __init__(self, name: str, data_dir: str, request: Request) -> None:
        cstorch = importlib.import_module("cerebras.pytorch")
        shares, share, workers = 1, 0, request.workers
        if cstorch.distributed.is_streamer():  # pytorch/distributed/__init__.py
            shares, share = cstorch.distributed.num_streamers(), cstorch.distributed.get_streaming_rank()
        elif cstorch.use_cs():
            workers = 0  # the user node reads one batch only
        benchmark = load(name)
        data = benchmark.open_data(data_dir, shape=request.shape, augment=request.augment, seed=request.seed)
        batch = request.global_batch_size // shares
        sampler = StepSampler(len(data), local_batch=batch, rank=share, world=shares, accumulation=1, seed=request.seed)
        self._loader = loader_of(data, sampler, request, local_batch=batch, workers=workers, pinned=False)
        dtype = TORCH_DTYPES[request.dtype]
        # The compiler chooses the layout on a CS system, so channels lie as the operations have them.
        self._prepare = benchmark.Prepare(data, torch.device("cpu"), dtype, channels_last=False)

    def __iter__(self) -> Iterator[Any]:
        for samples, targets in self._loader:
            labels = targets.int() if targets.dtype == torch.int64 else targets
            yield self._prepare(samples), labels


def read_batches(name: str, data_dir: str, request: Request) -> Iterable[Any]:
    """The input function: the package calls it here and, from the archive in `python_paths`, on worker nodes."""
    return PreparedBatches(name, os.path.realpath(data_dir), request)


def loader_alone(read: Callable[[], Iterable[Any]], steps: int) -> Optional[float]:
    """Return samples/s of the input function on this machine, by the package's benchmark of loaders."""
    tool = importlib.import_module("cerebras.pytorch.utils.benchmark")
    rate = tool.benchmark_dataloader(read, steps_per_epoch=steps, print_metrics=False).global_sample_rate
    return None if rate is None else float(rate)
