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
import sys
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple

import torch

from models.abort import OUT_OF_MEMORY
from models.accelerators.csx import VERIFIED, Csx
from models.benchmarks import load
from models.checks import MOST_SAMPLES, FirstInputs
from models.data.sampling import StepSampler
from models.dtypes import TORCH_DTYPES
from models.errors import CompileFailed, DeviceOutOfMemory, ImpossibleRequest, MachineFailed, first_line, with_message
from models.loaders import loader_of
from models.meter import Meter
from models.request import Request
from models.steps.csx_rates import scheduler_of
from models.training_setup import TrainingSetup, dropout_seed, make_sampler, make_schedule

# What errors without a class of their own say (appliance/utils/traceback.py, pytorch/backend/ltc_backend.py).
NOT_COMPILED = ("owering failed", "MLIR Compile Lowering", "Cerebras constraints were violated")


class CsxStep:
    """Model, optimiser and executor; a call trains on one global batch (models.steps.TrainingStep)."""

    compile_s: Optional[float] = None
    compile_cache: Optional[str] = None  # the cluster does not say whether it found a compiled program

    def __init__(self, accelerator: Csx, setup: TrainingSetup, meter: Meter, inputs: FirstInputs) -> None:
        refuse(setup.request, accelerator.on_wafer)
        setup.warnings.extend(doubts(accelerator))
        self.accelerator = accelerator
        self.cstorch = accelerator.cstorch
        self.setup = setup
        self.meter = meter
        self.loss = float("nan")
        self.counted_in_warmup: Tuple[float, float] = (0.0, 0.0)  # samples and seconds, by the package
        self.counted = self.counted_in_warmup  # and with all steps until now
        with errors_of_cluster():
            self.engine = self.open_backend()
            systems = self.engine.cluster_config.num_csx if accelerator.on_wafer else 1
            self.replicas: Optional[Tuple[int, int]] = (systems, 1)
            self._look_at_first_samples(inputs)
            self._build()

    def open_backend(self) -> Any:
        """Return the package's backend; its logs go to the folder cerebras_logs where the job runs."""
        if not self.accelerator.on_wafer:
            return self.cstorch.backend("CPU", artifact_dir="cerebras_logs")
        # The front end of the compiler is a program beside Python, which the package looks for in PATH.
        os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
        # With accumulation a micro-batch has the size asked for, else the compiler chooses one (pytorch/backends.py).
        request = self.setup.request
        micro_batch = request.local_batch_size if request.accumulation_steps > 1 else "auto"
        self.cstorch.backends.csx.performance.micro_batch_size = micro_batch
        code = code_root()
        cluster = self.cstorch.distributed.ClusterConfig(  # appliance/cluster_config.py
            num_csx=request.replicas,
            mount_dirs=sorted({os.path.realpath(self.setup.options.data_dir), os.path.dirname(code)}),
            python_paths=[code],
        )
        return self.cstorch.backend("CSX", artifact_dir="cerebras_logs", cluster_config=cluster)

    def _look_at_first_samples(self, inputs: FirstInputs) -> None:
        """Give the checks samples as they are in the files. What the executor yields is prepared."""
        data = self.setup.data
        keys = next(iter(make_sampler(self.setup.request, len(data), rank=0)))[:MOST_SAMPLES]
        inputs.take(torch.utils.data.default_collate([data[key] for key in keys])[0])

    def _build(self) -> None:
        """Make model, optimiser, executor, and the traced step. The first call compiles it."""
        cstorch, setup = self.cstorch, self.setup
        request, benchmark = setup.request, setup.benchmark

        # The model has the weights that it has on every other device. `compile` moves them to the systems.
        torch.manual_seed(request.seed)
        self.model = benchmark.build(request.variant, request.shape)
        forward = cstorch.compile(self.model, self.engine)
        optimizer = package_optimizer(cstorch, benchmark.make_optimizer(self.model))

        # One step more than the loop makes: it lets the executor end by itself, outside of the last window.
        steps = request.steps + 1
        schedule = scheduler_of(cstorch, optimizer, make_schedule(setup).rate, steps)
        read = functools.partial(read_batches, setup.name, setup.options.data_dir, request)
        if setup.options.measure_loader:
            self.meter.of_vendor["loader_throughput"] = loader_alone(read, request.steps_per_window)
        self.executor = cstorch.utils.data.DataExecutor(cstorch.utils.data.DataLoader(read), num_steps=steps)

        def step(samples: Any, targets: Any) -> Any:
            labels = targets if targets.is_floating_point() else targets.long()
            with contextlib.nullcontext() if request.dtype == "fp32" else cstorch.amp.autocast():
                loss = benchmark.criterion(forward(samples), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
            return loss

        def keep(loss: Any) -> None:
            self.loss = float(loss)

        self._train = cstorch.trace(step)
        self._keep = cstorch.step_closure(keep)
        self._stream = iter(self.executor)
        self._batch: Any = None  # the one that comes next

    def batches(self) -> Iterator[Any]:
        """Yield the batch that `__call__` has fetched: it asks for the next one, because that ends its own step."""
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
            self.counted = (rates.total_samples, rates.total_time)
        if number == 0:
            self.compile_s = compile_seconds(self.engine)
        if number + 1 == self.setup.request.warmup_steps:
            self.counted_in_warmup = self.counted
        return self.loss

    def trained(self) -> Any:
        """End the executor with its last step, and return a copy of the model with the weights of the cluster."""
        self._report_rates()
        with errors_of_cluster():
            if self.executor.on_final_iteration:
                self._train(*self._batch)
                next(self._stream, None)
            self._stream.close()
            to_cpu = self.engine.to_cpu
            weights = {name: to_cpu(tensor).to("cpu") for name, tensor in self.model.state_dict().items()}
        model = self.setup.benchmark.build(self.setup.request.variant, self.setup.request.shape)
        model.load_state_dict(weights)
        return model

    def _report_rates(self) -> None:
        """Give the meter the package's own rates, of the windows and of the whole run."""
        rates = self.executor.profiler.rate_tracker
        samples = self.counted[0] - self.counted_in_warmup[0]
        seconds = self.counted[1] - self.counted_in_warmup[1]
        self.meter.of_vendor["vendor_throughput"] = {
            "windows": samples / seconds if seconds > 0 else None,
            "rate": rates.rate,
            "global_rate": rates.global_rate,
        }


# --- what cannot be asked for -----------------------------------------------------------------------------------------


def refuse(request: Request, on_wafer: bool) -> None:
    """Raise ImpossibleRequest for what a CS system cannot do or cannot show."""
    for is_asked, what, reason, advice in _impossible(request, on_wafer):
        if is_asked:
            raise ImpossibleRequest(f"--device csx does not take {what}: {reason}; {advice}")


def _impossible(request: Request, on_wafer: bool) -> List[Tuple[bool, str, str, str]]:
    """Return whether each such thing is asked for, how it is asked for, why it is impossible, and what to do."""
    faults = request.inject or {}
    leave_out = "leave it out"
    everywhere = [
        (request.mode == "blocking", "--mode blocking", "samples are streamed while the system computes", leave_out),
        (request.skip_corrupt, "--skip-corrupt", "the nodes that read do not say what they skipped", leave_out),
        ("stall_s" in faults, "--inject-stall-s", "other nodes read the samples, and we cannot delay them", leave_out),
        (request.warmup_steps == 0, "--warmup-steps 0", "the first step compiles", "use at least 1"),
        (
            request.devices_per_replica > 1,
            f"--devices-per-replica {request.devices_per_replica}",
            "each CS system holds a whole copy of the model",
            leave_out,
        ),
    ]
    on_cluster = [
        (
            request.cache != "as-is",
            f"--cache {request.cache}",
            "the memory of the nodes that read cannot be seen from here",
            leave_out,
        ),
        (
            request.window_s > 0,
            f"--size {request.size} without --steps-per-window",
            "a run must know its steps before it starts",
            "give --steps-per-window",
        ),
    ]
    in_trial = [
        (request.replicas > 1, f"--replicas {request.replicas}", "the CPU backend has one", leave_out),
        (
            request.accumulation_steps > 1,
            f"--accumulation-steps {request.accumulation_steps}",
            "the CPU backend trains on a whole batch at once",
            leave_out,
        ),
    ]
    return everywhere + (on_cluster if on_wafer else in_trial)


def doubts(accelerator: Csx) -> List[str]:
    """Return warnings about the package and its backend."""
    found = []
    version = accelerator.cstorch.__version__
    if version != VERIFIED:
        found.append(f"cerebras.pytorch {version}: this code was tried with {VERIFIED} only")
    if not accelerator.on_wafer:
        found.append("no CS system: cerebras.pytorch's CPU backend trained on this machine's processor")
    return found


# --- what is asked of the package -------------------------------------------------------------------------------------


def code_root() -> str:
    """Return the archive or the folder that holds the package `models`, which worker nodes import."""
    root = os.path.realpath(__file__)
    for _ in range(3):
        root = os.path.dirname(root)
    return root


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
        # The package raises a plain Exception where the cluster does not answer (appliance/cluster/client.py,
        # validate_connectivity). Any other class is an error of ours.
        sentence = f"the cluster does not answer: {first_line(error)}"
        raise MachineFailed(with_message(f"{sentence}; ask its administrators", error)) from error


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
