"""Cerebras CS systems: one process drives all of them, through the package cerebras.pytorch (docs/accelerators.md).

What is done with a batch there is in models/steps/csx.py. On the package's CPU backend, which is for trials, this
process does everything. Facts about the package are those of its release 2.10.0; each names its file below
site-packages/cerebras/.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from typing import Any, Dict, List, Mapping, Optional, Tuple

from models import host
from models.accelerators import DrivenByProgram
from models.accelerators.refusals import Refusal, of_any_program, refuse_first
from models.errors import ImpossibleRequest
from models.world import World

BACKEND = "HPC_ML_BENCH_CSX_BACKEND"  # CSX, or CPU for a trial
# The first is the best. The CSX backend always trains in mixed precision
# (pytorch/backend/ltc_backend.py), and bf16 needs no scaler.
DTYPES = ("bf16",)
TRIAL_DTYPES = ("fp32", "bf16")
VERIFIED = "2.10.0"
INSTALL = (
    f"make an environment of its own with Python 3.11 on x86-64 Linux: python3.11 -m venv env-csx && env-csx/bin/pip "
    f"install cerebras-pytorch=={VERIFIED} Pillow (from PyPI; it pins torch 2.4.0 and numpy 1.25.0)"
)


class Csx(DrivenByProgram):
    """The CS systems of a cluster, each with a copy of the model, or the package's CPU backend."""

    type = "csx"
    family = "csx"

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        import torch  # imported late, because `refuse` must not need it

        self.device = torch.device("cpu")  # of this rank's own tensors
        self._environ = environ
        self._name = f"cerebras.pytorch's CPU backend on {host.cpu_name()}"
        kind = environ.get(BACKEND, "CSX")
        if kind not in ("CSX", "CPU"):
            raise ImpossibleRequest(f"{BACKEND} is CSX or CPU, not {kind!r}; unset it to train on CS systems")
        self.on_wafer = kind == "CSX"
        self.reads_here = not self.on_wafer
        self.cstorch: Any = None  # the package, imported by `select`

    @property
    def no_split(self) -> str:
        if self.on_wafer:
            return "worker nodes stream the samples to the CS system, so this process sees no wait for data"
        return "the executor of cerebras.pytorch ends a step and reads the next batch in one call"

    def select(self, world: World) -> None:
        """Import the package. Raises ImpossibleRequest without it, for several ranks, or away from a cluster."""
        if world.size > 1:
            raise ImpossibleRequest(
                f"{world.size} ranks were started, and one process drives all CS systems; start one, with --replicas N"
            )
        if self.on_wafer:  # before the package, whose import takes long
            check_user_node(self._environ)
        self.cstorch = import_package()
        if self.on_wafer:
            self._name = system_name(self._environ)

    def steps_per_batch(self, common_divisor: int) -> int:
        return 1

    def dtypes(self) -> Tuple[str, ...]:
        return DTYPES if self.on_wafer else TRIAL_DTYPES

    def settle(self, dtype: str) -> None:
        if dtype == "bf16":
            import torch

            self.cstorch.amp.set_half_dtype(torch.bfloat16)

    def peak_flops(self, dtype: str) -> Optional[float]:
        return None

    def facts(self, dtype: str) -> Dict[str, object]:
        return {
            "type": self.type,
            "name": self._name,
            "count": None if self.on_wafer else 1,  # how many systems the cluster has is not asked
            "memory_bytes": self.memory_bytes(),
            "driver": self.cstorch.__version__,
            "peak_flops": None,
        }

    def memory_bytes(self) -> Optional[int]:
        """Return None for a CS system: its weights lie in the cluster, and its compiler cuts a batch that is large."""
        return None if self.on_wafer else host.memory_bytes()


def refuse(options: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> None:
    """Raise ImpossibleRequest for what options and environment show to be impossible here."""
    on_wafer = environ.get(BACKEND, "CSX") != "CPU"
    refuse_first("csx", of_any_program(options, DTYPES if on_wafer else TRIAL_DTYPES))
    refuse_first("csx", _refusals(options))
    if on_wafer:
        refuse_first("csx", _refusals_of_cluster(options))


def _refusals(options: argparse.Namespace) -> List[Refusal]:
    spread = options.devices_per_replica or 1
    streamed = "samples are streamed while the system computes"
    other_nodes = "other nodes read the samples, and we cannot delay them"
    return [
        Refusal(options.mode == "blocking", "--mode blocking", streamed),
        Refusal(options.skip_corrupt, "--skip-corrupt", "the nodes that read do not say what they skipped"),
        Refusal(options.inject_stall_s is not None, "--inject-stall-s", other_nodes),
        Refusal(options.warmup_steps == 0, "--warmup-steps 0", "the first step compiles", "use at least 1"),
        Refusal(spread > 1, f"--devices-per-replica {spread}", "each CS system holds a whole copy of the model"),
    ]


def _refusals_of_cluster(options: argparse.Namespace) -> List[Refusal]:
    unseen = "the memory of the nodes that read cannot be seen from here"
    return [
        Refusal(options.inject_slow is not None, "--inject-slow", "the cluster makes its steps by itself"),
        Refusal(options.cache != "as-is", f"--cache {options.cache}", unseen),
        Refusal(
            options.configuration == "gbs32" and options.dtype == "auto",
            "--configuration gbs32",
            "it trains in fp32, and a CS system always trains in mixed precision",
            "use --configuration tuned (`configurations: [tuned]` in a platform's file)",
        ),
    ]


def import_package() -> Any:
    """Import cerebras.pytorch. Raises ImpossibleRequest, with where it comes from."""
    old = f"as CS-2s had it, and models/ needs {VERIFIED}. If the cluster runs that release, {INSTALL}"
    try:
        package = importlib.import_module("cerebras.pytorch")
        if package.__version__.startswith(("2.1.", "2.2.")):
            raise ImpossibleRequest(f"{sys.executable} has cerebras.pytorch {package.__version__}, {old}")
        return package
    except ImportError as error:
        if importlib.util.find_spec("cerebras_pytorch"):
            raise ImpossibleRequest(f"{sys.executable} has cerebras_pytorch, {old}") from error
        raise ImpossibleRequest(
            f"--device csx needs cerebras.pytorch, which cannot be imported in {sys.executable} ({error}). On a user "
            f"node of a Cerebras cluster, {INSTALL}"
        ) from error


def check_user_node(environ: Mapping[str, str]) -> None:
    """Raise ImpossibleRequest on a machine that is no user node of a cluster."""
    path = cluster_file(environ)
    if not os.path.exists(path):
        raise ImpossibleRequest(
            f"there is no {path} on this machine, so it is no user node of a Cerebras cluster; run there, or for a "
            f"trial on this machine's processor type: export {BACKEND}=CPU"
        )


def cluster_file(environ: Mapping[str, str]) -> str:
    """Return the file that describes the cluster, as the package finds it (appliance/cluster/config.py)."""
    return environ.get("CSCONFIG_PATH") or "/opt/cerebras/config_v2"


def system_name(environ: Mapping[str, str]) -> str:
    """Return the name of the cluster's systems. Raises ImpossibleRequest if the cluster's file cannot be read."""
    config = importlib.import_module("cerebras.appliance.cluster.config")
    try:
        _, cluster = config.load_cs_cluster_config()
    except (config.ClusterConfigError, ValueError, OSError) as error:
        raise ImpossibleRequest(
            f"{cluster_file(environ)} cannot be read ({error}); ask the cluster's administrators"
        ) from error
    return "Cerebras " + {"cs2": "CS-2", "cs3": "CS-3"}.get(cluster.fabric_type, str(cluster.fabric_type))
