"""The training step on Cerebras CS systems.

The step is traced once and compiled to one program. The cluster then makes all steps of the run by itself, from samples
that worker nodes stream to the systems (models/steps/csx_input.py). This process reads the first batch only, from which
the program's shapes follow, and fetches the loss of some steps. On the package's CPU backend, which is for trials, this
process does everything. Files in brackets are those of cerebras-pytorch 2.10.0.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
import signal
import sys
import tempfile
import time
from typing import Any, Iterator, List, Optional, Tuple

import torch

from models.accelerators.csx import VERIFIED, Csx
from models.accelerators.refusals import Refusal, refuse_first
from models.checks import MOST_SAMPLES, FirstInputs
from models.errors import ImpossibleRequest
from models.meter import Meter
from models.request import Request
from models.steps.csx_errors import errors_of_cluster
from models.steps.csx_input import rate_alone, rate_by_package, read_batches
from models.steps.csx_rates import scheduler_of
from models.training_setup import TrainingSetup, dropout_seed, make_sampler, make_schedule

MOST_STEPS_BETWEEN_LOSSES = 20  # so that a run has enough losses to see whether they fall
FEW_STEPS_BETWEEN_LOSSES = 5  # with fewer, this process waits for the cluster so often that it may set the pace
SHORT_WINDOW_S = 10.0
OWN_SHARE = 0.5  # of a step's time, from which this process may set the pace
INPUT_SHARE = 0.8  # of the input function's rate alone, from which that may set the pace
FILES_LOOKED_AT = 64  # of the data set, for the folders that the cluster must mount
TERMINATED = 128 + signal.SIGTERM  # the exit code of a process that SIGTERM ends


class Terminated(KeyboardInterrupt):
    """SIGTERM has come. The package takes a KeyboardInterrupt for a job that is cancelled (clean_shutdown)."""


class CsxStep:
    """Model, optimiser and executor; a call trains on one global batch (models.steps.TrainingStep)."""

    compile_s: Optional[float] = None
    compile_cache: Optional[str] = None  # the cluster does not say whether it found a compiled program

    def __init__(self, accelerator: Csx, setup: TrainingSetup, meter: Meter, inputs: FirstInputs) -> None:
        refuse(setup.request, accelerator.on_wafer)
        setup.warnings.extend(warnings_on_package(accelerator))
        self.accelerator = accelerator
        self.cstorch = accelerator.cstorch
        self.setup = setup
        self.meter = meter
        self.loss = float("nan")
        self.loss_every = steps_between_losses(setup.request, bool(setup.options.trace_losses))
        meter.runs_ahead = self.loss_every > 1
        self.counted_in_warmup: Tuple[float, float] = (0.0, 0.0)  # samples and seconds, by the package
        self.counted = self.counted_in_warmup  # and with all steps whose loss was read
        self.own_s: List[float] = []  # of the calls in the windows that waited for no loss
        self.input_rate: Optional[float] = None  # samples/s of the input function on this machine
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
        limit_s = self.setup.options.time_limit_s
        cluster = self.cstorch.distributed.ClusterConfig(  # appliance/cluster_config.py
            num_csx=request.replicas,
            mount_dirs=sorted({os.path.dirname(code), *folders_of(self.setup.options.data_dir, self.setup.data)}),
            python_paths=[code],
            job_time_sec=limit_s and math.ceil(limit_s),  # the cluster counts from the moment at which a job runs
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
        self._time_input()
        self.executor = cstorch.utils.data.DataExecutor(
            cstorch.utils.data.DataLoader(read), num_steps=steps, activation_steps=self.loss_every
        )

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
        if self.accelerator.on_wafer:
            signal.signal(signal.SIGTERM, self._terminate)

    def _time_input(self) -> None:
        """Measure how fast the input function is alone. The nodes that stream may be faster or slower than this one."""
        setup = self.setup
        timed = functools.partial(read_batches, setup.name, setup.options.data_dir, setup.request, timed=True)
        if self.accelerator.on_wafer:
            self.input_rate = rate_alone(timed())
            self.meter.of_vendor["input_throughput"] = self.input_rate
        if setup.options.measure_loader:
            self.meter.of_vendor["loader_throughput"] = rate_by_package(timed, setup.request.steps_per_window)

    def _terminate(self, number: int, frame: Any) -> None:
        """End the executor, which cancels the job on the cluster. Else it would keep the systems for some time."""
        if self._stream.gi_running:  # the signal came while the executor waits: the error passes through it
            raise Terminated
        with contextlib.suppress(BaseException):  # whatever the package says about it, this process ends
            self._stream.throw(Terminated())
        sys.exit(TERMINATED)

    def _next_batch(self) -> Any:
        try:
            return next(self._stream)
        except Terminated:
            sys.exit(TERMINATED)

    def batches(self) -> Iterator[Any]:
        """Yield the batch that `__call__` has fetched: it asks for the next one, because that ends its own step."""
        with errors_of_cluster():
            self._batch = self._next_batch()
        while True:
            yield self._batch

    def __call__(self, number: int, batch: Any) -> Optional[float]:
        """Train. Return the loss where it is fetched, at the edges of windows too; None where the cluster runs ahead.

        The executor ends a step, with what was to be done after it, when it is asked for the next batch
        (pytorch/utils/data/data_executor.py). In the first step that is when it compiles.
        """
        if not self.accelerator.on_wafer:  # the same dropout as in the loop of CPUs; a CS system draws its own
            torch.default_generator.manual_seed(dropout_seed(self.setup, number, 0))
        steps = number + 1
        warmup_steps = self.setup.request.warmup_steps
        begun_s = time.perf_counter()
        with errors_of_cluster():
            self._keep(self._train(*batch))
            self._batch = self._next_batch()
            if number == 0:
                self._look_at_compilation()
            if steps % self.loss_every:  # what was kept is the loss of an earlier step
                if steps > warmup_steps:
                    self.own_s.append(time.perf_counter() - begun_s)
                return None
            rates = self.executor.profiler.rate_tracker
            self.counted = (rates.total_samples, rates.total_time)
        if steps == warmup_steps:
            self.counted_in_warmup = self.counted
        return self.loss

    def trained(self) -> Any:
        """End the executor with its last step, and return a copy of the model with the weights of the cluster.

        The weights come in the package's own way, by a file: it also brings those that lie in the cluster.
        """
        self._report_rates()
        self.setup.warnings.extend(self._warnings_on_rate())
        with errors_of_cluster(), tempfile.TemporaryDirectory(dir=".") as folder:
            if self.executor.on_final_iteration:
                self._keep(self._train(*self._batch))
                with contextlib.suppress(StopIteration):
                    self._next_batch()
            self._stream.close()
            file = os.path.join(folder, "weights")
            self.cstorch.save(self.model.state_dict(), file)
            model = self.setup.benchmark.build(self.setup.request.variant, self.setup.request.shape)
            model.load_state_dict(self.cstorch.load(file, map_location="cpu"))
        return model

    def _look_at_compilation(self) -> None:
        """Ask the package's tracker how long the cluster compiled, and how long the job waited for its turn."""
        tracker = self.engine._impl.appliance_tracker
        self.compile_s = tracked_seconds(tracker, "pt_cirh", "cirh_end")
        if self.accelerator.on_wafer:
            self.meter.of_vendor["queue_s"] = tracked_seconds(tracker, "compile_coord_start", "scheduler_wait")
            self.meter.of_vendor["compile_hash"] = compile_hash(self.engine)

    def _report_rates(self) -> None:
        """Give the meter the package's own rates, of the windows and of the whole run."""
        rates = self.executor.profiler.rate_tracker
        samples, seconds = self._in_windows()
        self.meter.of_vendor["vendor_throughput"] = {
            "windows": samples / seconds if seconds > 0 else None,
            "rate": rates.rate,
            "global_rate": rates.global_rate,
        }

    def _in_windows(self) -> Tuple[float, float]:
        """Return the samples and the seconds of all windows together, by the package."""
        return self.counted[0] - self.counted_in_warmup[0], self.counted[1] - self.counted_in_warmup[1]

    def _warnings_on_rate(self) -> Iterator[str]:
        """Yield why the rate may be that of something else than the CS systems."""
        request = self.setup.request
        samples, seconds = self._in_windows()
        if not self.accelerator.on_wafer or not samples or seconds <= 0:
            return
        rate = samples / seconds
        step_s = request.global_batch_size / rate
        if self.loss_every < FEW_STEPS_BETWEEN_LOSSES:
            yield (
                f"this process fetched a loss every {self.loss_every} step(s), and the rate may be that of its "
                "requests: leave out --trace-losses, and ask for --warmup-steps and --steps-per-window with a common "
                f"divisor such as {MOST_STEPS_BETWEEN_LOSSES}"
            )
        if self.own_s:
            own_s = sum(self.own_s) / len(self.own_s)
            self.meter.of_vendor["own_share"] = own_s / step_s
            if own_s > OWN_SHARE * step_s:
                yield (
                    f"bound by the user node: this process itself works {own_s:.3g} s of the {step_s:.3g} s that a "
                    "step takes, so the rate may be that of its loop; ask for a larger --global-batch-size"
                )
        if self.input_rate and rate > INPUT_SHARE * self.input_rate * request.replicas:
            yield (
                f"bound by the input function: the run had {rate:.4g} samples/s, and {request.replicas} node(s) that "
                f"only read and prepare would reach {self.input_rate * request.replicas:.4g} if they were as fast as "
                "this one; compare the GlobalRate in the logs of the cluster's worker nodes"
            )
        if seconds < SHORT_WINDOW_S * request.windows:
            yield (
                f"a window lasts {seconds / request.windows:.3g} s, and what the cluster has buffered counts in it: "
                f"ask for more --steps-per-window, for {SHORT_WINDOW_S:g} s or more"
            )


def steps_between_losses(request: Request, is_traced: bool) -> int:
    """Return n, where the loss of every n-th step is fetched. n divides warm-up and windows, so their edges are exact.

    Fetching the loss of each step would let this process set the pace: each takes requests to the cluster, one after
    the other (pytorch/backend/ltc_backend.py: run_step_closures).
    """
    if is_traced or request.window_s:  # a window that is made longer during the run may have any number of steps
        return 1
    common = math.gcd(request.warmup_steps, request.steps_per_window)
    return max(steps for steps in range(1, MOST_STEPS_BETWEEN_LOSSES + 1) if common % steps == 0)


# --- what cannot be asked for -----------------------------------------------------------------------------------------


def refuse(request: Request, on_wafer: bool) -> None:
    """Raise ImpossibleRequest for what a CS system cannot do, beside what the options alone show."""
    on_cluster = Refusal(
        request.window_s > 0,
        f"--size {request.size} without --steps-per-window",
        "a run must know its steps before it starts",
        "give --steps-per-window",
    )
    steps = request.accumulation_steps
    whole = "the CPU backend trains on a whole batch at once"
    in_trial = [
        Refusal(request.replicas > 1, f"--replicas {request.replicas}", "the CPU backend has one"),
        Refusal(steps > 1, f"--accumulation-steps {steps}", whole),
    ]
    refuse_first("csx", [on_cluster] if on_wafer else in_trial)


def warnings_on_package(accelerator: Csx) -> List[str]:
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


def folders_of(data_dir: str, data: Any) -> List[str]:
    """Return the folders with the files of a data set, which may be links to files elsewhere."""
    folder = os.path.realpath(data_dir)
    indices = range(0, len(data), max(1, len(data) // FILES_LOOKED_AT))
    files = [os.path.realpath(os.fsdecode(data.path(index))) for index in indices]
    elsewhere = [os.path.dirname(file) for file in files if not file.startswith(folder + os.sep)]
    if not elsewhere:
        return [folder]
    common = os.path.commonpath(elsewhere)
    return [folder, *({common} if common != os.sep else set(elsewhere))]


def tracked_seconds(tracker: Any, *entries: str) -> Optional[float]:
    """Return how long these entries of the package's tracker took together; None where there is none of them.

    (appliance/utils/tracker.py. pytorch/core/appliance.py and appliance/appliance_manager.py measure `pt_cirh` and
    `cirh_end`, the compilation, and `compile_coord_start`, until the compile job runs; appliance/cluster/client.py
    measures `scheduler_wait`, until the job has its systems.)
    """
    stats = [tracker.profile_stats(entry) for entry in entries]
    totals = [float(entry.total) for entry in stats if entry.count]
    return sum(totals) if totals else None


def compile_hash(engine: Any) -> Optional[str]:
    """Return the cluster's name for the compiled program. A program with the same name was not compiled again."""
    response = getattr(engine._impl.appliance, "compile_resp", None)
    folder = getattr(response, "cache_compile_dir", None)
    return os.path.basename(folder) if folder else None


def package_optimizer(cstorch: Any, optimizer: Any) -> Any:
    """Return the package's optimiser of the same name, with the same groups of parameters.

    Raises ImpossibleRequest where it lacks one, or one with these values.
    """
    name = type(optimizer).__name__
    kind = getattr(cstorch.optim, name, None)
    if kind is None or not type(optimizer).__module__.startswith("torch.optim"):
        raise ImpossibleRequest(
            f"cerebras.pytorch has no {type(optimizer).__module__}.{name}, this benchmark's optimiser; use a GPU"
        )
    known = set(inspect.signature(kind.__init__).parameters)
    groups = []
    for group in optimizer.param_groups:
        unknown = [key for key, value in group.items() if key not in known and value not in (None, False)]
        if unknown:
            raise ImpossibleRequest(f"cerebras.pytorch's {name} knows no {unknown[0]}; use a GPU for this benchmark")
        groups.append({key: value for key, value in group.items() if key in known})
    return kind(groups, **{key: value for key, value in optimizer.defaults.items() if key in known})
