"""What models/ uses of cerebras-pytorch 2.10.0, with that package's files; torch stands for the cluster.

On the CSX backend the step is traced once, the executor repeats the first batch, and each end of a step is what the
cluster would do: it trains on the batch that a worker node's input function gives. Closures run at each
`activation_steps`-th step and at the last. By the package's clock a step takes FAKE_CSX_STEP_S seconds (1), and the
first one COMPILE_S more. FAKE_CSX_FAILS is what the compiler says of the program, FAKE_CSX_TERMINATED the step in which
this process gets a SIGTERM. With FAKE_CSX_FAILS_AT_THE_END the weights do not come back.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from cerebras.appliance import errors
from cerebras.pytorch import utils

__version__ = "2.10.0"
COMPILE_S = 100.0

# --- pytorch/backend/__init__.py, base_backend.py, ltc_backend.py


class Backend:
    current: Backend | None = None

    def __init__(self, backend_type: str, artifact_dir: str | None = None, cluster_config: Any = None) -> None:
        Backend.current = self
        self.is_csx = backend_type == "CSX"
        self.cluster_config = cluster_config
        self.closures: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.traced: Callable[..., Any] | None = None
        self.tracked: dict[str, float] = {}  # seconds
        self._impl = SimpleNamespace(
            appliance_tracker=SimpleNamespace(profile_stats=self._stats),
            appliance=SimpleNamespace(compile_resp=SimpleNamespace(cache_compile_dir="/cluster/cs_5d41")),
        )
        if self.is_csx:
            seen = {**vars(cluster_config), "path": os.environ["PATH"], "micro": micro.micro_batch_size}
            Path("cluster.json").write_text(json.dumps(seen))

    def _stats(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(count=int(name in self.tracked), total=self.tracked.get(name, 0.0))


backend = Backend


def use_cs() -> bool:
    return Backend.current is not None and Backend.current.is_csx and not distributed.on_worker


def _now() -> Backend:
    assert Backend.current is not None
    return Backend.current


# --- pytorch/core/compile.py, pytorch/utils/step_closures.py


def compile(model: Any, backend: Any = None) -> Any:  # noqa: A001
    return model


def trace(step_fn: Callable[..., Any]) -> Callable[..., Any]:
    outcome = torch.zeros(())  # whose value only the cluster knows

    def traced(*batch: Any) -> Any:
        if not _now().is_csx:
            return step_fn(*batch)
        _now().traced = lambda *streamed: outcome.copy_(step_fn(*streamed).detach())
        return outcome

    return traced


def step_closure(closure: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments: _now().closures.append((closure, arguments))


# --- pytorch/utils/data/dataloader.py, data_executor.py, pytorch/utils/profiler.py


class DataLoader:
    def __init__(self, input_fn: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.read = lambda: input_fn(*args, **kwargs)


class DataExecutor:
    def __init__(
        self, dataloader: DataLoader, num_steps: int | None = None, activation_steps: int | None = None
    ) -> None:
        self.dataloader = dataloader
        self.num_steps = num_steps or 1
        self.activation_steps = activation_steps or 1
        self.step = 0
        self.profiler = SimpleNamespace(rate_tracker=self)
        self.total_samples = 0.0

    @property
    def total_time(self) -> float:
        return COMPILE_S + self.step * float(os.environ.get("FAKE_CSX_STEP_S", "1"))

    @property
    def global_rate(self) -> float:
        return self.total_samples / self.total_time

    rate = global_rate

    @property
    def on_final_iteration(self) -> bool:
        return self.step + 1 >= self.num_steps

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._steps()
        except BaseException as error:
            Path("executor-ended").write_text(type(error).__mro__[1].__name__)
            raise

    def _steps(self) -> Iterator[Any]:
        engine = _now()
        here = iter(self.dataloader.read())
        batch = next(here)
        with distributed.worker() if engine.is_csx else contextlib.nullcontext():
            streamed = iter(self.dataloader.read()) if engine.is_csx else None
        while self.step < self.num_steps:
            yield batch
            if streamed is not None:
                self._on_cluster(engine, next(streamed))
            self.total_samples += len(batch[0])
            closures, engine.closures = engine.closures, []
            self.step += 1
            if self.step % self.activation_steps == 0 or self.step == self.num_steps:
                for closure, arguments in closures:
                    closure(*arguments)
            if str(self.step) == os.environ.get("FAKE_CSX_TERMINATED"):
                os.kill(os.getpid(), signal.SIGTERM)
            if self.step < self.num_steps and streamed is None:
                batch = next(here)

    def _on_cluster(self, engine: Backend, batch: Any) -> None:
        if self.step == 0:
            if os.environ.get("FAKE_CSX_FAILS"):
                raise errors.ApplianceCompilationError(os.environ["FAKE_CSX_FAILS"])
            engine.tracked.update(compile_coord_start=90.0, scheduler_wait=30.0, pt_cirh=12.0, cirh_end=0.5)
        assert engine.traced is not None
        engine.traced(*batch)


# --- pytorch/distributed/__init__.py, appliance/cluster_config.py


class ClusterConfig:
    def __init__(
        self, num_csx: int, mount_dirs: list[str], python_paths: list[str], job_time_sec: int | None = None
    ) -> None:
        self.num_csx = num_csx
        self.job_time_sec = job_time_sec
        self.mount_dirs = mount_dirs
        self.python_paths = python_paths


class _Distributed:
    ClusterConfig = ClusterConfig
    on_worker = False

    @contextlib.contextmanager
    def worker(self) -> Iterator[None]:
        self.on_worker = True
        yield
        self.on_worker = False

    def is_streamer(self) -> bool:
        return self.on_worker

    def num_streamers(self) -> int:
        return 1

    def get_streaming_rank(self) -> int:
        return 0

    def get_streaming_batch_size(self, effective_batch_size: int) -> int:
        return effective_batch_size


# --- pytorch/storage, the API of checkpoints


def save(state_dict: dict[str, Any], ckpt_path: str) -> None:
    if os.environ.get("FAKE_CSX_FAILS_AT_THE_END"):
        raise errors.ApplianceUnknownError("the weights are not there")
    Path(ckpt_path).write_bytes(pickle.dumps(state_dict))


def load(ckpt_path: str, map_location: str | None = None) -> Any:
    return pickle.loads(Path(ckpt_path).read_bytes())


# --- pytorch/optim/SGD.py, scheduler.py, lr_scheduler.py, pytorch/amp/


class SGD(torch.optim.SGD):
    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, maximize=maximize)


class LambdaLR:
    def __init__(self, optimizer: Any, initial_learning_rate: float) -> None:
        self.optimizer = optimizer
        self.initial_learning_rate = initial_learning_rate
        self.last_epoch = torch.tensor(-1)
        self.step()

    def set_value_lambda(self) -> list[Callable[[Any], Any]]:
        raise NotImplementedError

    def step(self) -> None:
        self.last_epoch = self.last_epoch + 1
        for group in self.optimizer.param_groups:
            (rate,) = self.set_value_lambda()
            group["lr"] = float(self.initial_learning_rate * rate(self.last_epoch))


distributed = _Distributed()
optim = SimpleNamespace(SGD=SGD, lr_scheduler=SimpleNamespace(LambdaLR=LambdaLR))
amp = SimpleNamespace(set_half_dtype=lambda dtype: None, autocast=lambda: torch.autocast("cpu", dtype=torch.bfloat16))
utils.data = SimpleNamespace(DataLoader=DataLoader, DataExecutor=DataExecutor)
micro = SimpleNamespace(micro_batch_size="auto")
backends = SimpleNamespace(csx=SimpleNamespace(performance=micro))
