"""AMD SMI as its documentation and its Python source describe it, for machines without AMD GPUs.

Sources: github.com/ROCm/amdsmi at 0ceca28f (ROCm 6.3), py-interface/README.md for names and units, amdsmi_interface.py
for "N/A", amdsmi_exception.py for the errors, src/amd_smi/amd_smi.cc for what the library does and does not document.
amdsmi 6.0.2, 6.1.2, 6.2.4, 6.4.4 and 7.0.2 from PyPI, amdsmi_interface.py, for what older and newer versions return.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

NOT_SUPPORTED = 2  # AMDSMI_STATUS_NOT_SUPPORTED


class AmdSmiException(Exception):
    pass


class AmdSmiLibraryException(AmdSmiException):
    pass


class AmdSmiClkType(IntEnum):
    GFX = 0
    MEM = 4


class AmdSmiTemperatureType(IntEnum):
    JUNCTION = 1


class AmdSmiTemperatureMetric(IntEnum):
    CURRENT = 0


class FakeGpu:
    """One GPU. `answers` are what the functions return, by name; a function that is not there is not supported."""

    def __init__(self, bdf: str, **answers: Any) -> None:
        self.bdf = bdf
        self.answers = answers


def mi210(bdf: str, *, junction_c: int = 61, throttled: object = False) -> FakeGpu:
    """An MI210 under ROCm 6.3: power only as an average, no violation status, no memory of errors."""
    return FakeGpu(
        bdf,
        amdsmi_get_clock_info={
            AmdSmiClkType.GFX: {"clk": 1700, "min_clk": 500, "max_clk": 1700, "clk_locked": "N/A"},
            AmdSmiClkType.MEM: {"clk": 1600, "min_clk": 400, "max_clk": 1600, "clk_locked": "N/A"},
        },
        amdsmi_get_temp_metric={AmdSmiTemperatureType.JUNCTION: junction_c},
        amdsmi_get_power_info={"current_socket_power": "N/A", "average_socket_power": 287, "power_limit": 300},
        amdsmi_get_power_cap_info={"power_cap": 300_000_000, "default_power_cap": 300_000_000, "dpm_cap": 5},
        amdsmi_get_gpu_total_ecc_count={"correctable_count": 3, "uncorrectable_count": 0, "deferred_count": 0},
        amdsmi_get_gpu_metrics_info={"indep_throttle_status": throttled},
    )


class FakeAmdSmi:
    """The module `amdsmi`. It sees all GPUs of the node: no variable hides one from it."""

    AmdSmiException = AmdSmiException
    AmdSmiLibraryException = AmdSmiLibraryException
    AmdSmiClkType = AmdSmiClkType
    AmdSmiTemperatureType = AmdSmiTemperatureType
    AmdSmiTemperatureMetric = AmdSmiTemperatureMetric

    def __init__(self, *gpus: FakeGpu, has_driver: bool = True) -> None:
        self._gpus = gpus
        self._has_driver = has_driver

    def amdsmi_init(self) -> None:
        if not self._has_driver:
            raise AmdSmiLibraryException(34)  # AMDSMI_STATUS_DRIVER_NOT_LOADED

    def amdsmi_get_processor_handles(self) -> list[FakeGpu]:
        return list(self._gpus)

    def amdsmi_get_gpu_device_bdf(self, gpu: FakeGpu) -> str:
        return gpu.bdf

    def amdsmi_get_clock_info(self, gpu: FakeGpu, kind: AmdSmiClkType) -> Any:
        return self._answer(gpu, "amdsmi_get_clock_info")[kind]

    def amdsmi_get_temp_metric(
        self, gpu: FakeGpu, sensor: AmdSmiTemperatureType, metric: AmdSmiTemperatureMetric
    ) -> Any:
        return self._answer(gpu, "amdsmi_get_temp_metric")[sensor]

    def amdsmi_get_power_info(self, gpu: FakeGpu) -> Any:
        return self._answer(gpu, "amdsmi_get_power_info")

    def amdsmi_get_energy_count(self, gpu: FakeGpu) -> Any:
        return self._answer(gpu, "amdsmi_get_energy_count")

    def amdsmi_get_power_cap_info(self, gpu: FakeGpu) -> Any:
        return self._answer(gpu, "amdsmi_get_power_cap_info")

    def amdsmi_get_gpu_total_ecc_count(self, gpu: FakeGpu) -> Any:
        return self._answer(gpu, "amdsmi_get_gpu_total_ecc_count")

    def amdsmi_get_gpu_metrics_info(self, gpu: FakeGpu) -> Any:
        return self._answer(gpu, "amdsmi_get_gpu_metrics_info")

    def amdsmi_get_violation_status(self, gpu: FakeGpu) -> Any:
        return self._answer(gpu, "amdsmi_get_violation_status")

    def _answer(self, gpu: FakeGpu, function: str) -> Any:
        if function not in gpu.answers:
            raise AmdSmiLibraryException(NOT_SUPPORTED)
        return gpu.answers[function]
