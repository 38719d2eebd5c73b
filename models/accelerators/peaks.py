"""The peak of each device in FLOP/s, so that an impossible rate is noticed.

GPU figures are the vendors' own, dense (never "with sparsity") and for whole products accumulated in fp32; where a
vendor states a vector and a matrix rate, the higher one. A processor's figure is a bound, computed from its clock.
"""

from __future__ import annotations

import math
import re
from typing import AbstractSet, Dict, Mapping, Optional, Tuple

from models.cgroups import cpu_quota
from models.host import cpu_flags, highest_clock_hz, node_cores


def _tera(
    fp32: float, tf32: Optional[float] = None, bf16: Optional[float] = None, fp16: Optional[float] = None
) -> Dict[str, float]:
    rates = {"fp32": fp32, "tf32": tf32, "bf16": bf16, "fp16": fp16}
    return {dtype: rate * 1e12 for dtype, rate in rates.items() if rate is not None}


# A pattern of the device's name in torch, and its peaks in TFLOP/s. The first match counts, so special forms stand
# before the plain name. The plain name has the fastest form's figures, because a bound must not be too low.
GPUS: Tuple[Tuple[str, Mapping[str, float]], ...] = (
    # NVIDIA Tesla P100 data sheet (2016)
    (r"P100-PCIE", _tera(9.3, fp16=18.7)),
    (r"P100", _tera(10.6, fp16=21.2)),
    # NVIDIA V100 data sheet (2020); the SXM3 form of DGX-2H runs at the V100S clock
    (r"V100-PCIE", _tera(14.0, fp16=112.0)),
    (r"V100-SXM2", _tera(15.7, fp16=125.0)),
    (r"V100", _tera(16.4, fp16=130.0)),
    # NVIDIA T4 data sheet (2019)
    (r"\bT4\b", _tera(8.1, fp16=65.0)),
    # NVIDIA A100 (2022), A30 (2022), A40 (2021), A10 (2021), RTX A6000 (2022) data sheets. Leonardo's A100-SXM-64GB has
    # 124 multiprocessors instead of 108: the same figures times 124/108
    (r"A100-SXM-64GB", _tera(22.4, 179.1, 358.2, 358.2)),
    (r"A100", _tera(19.5, 156.0, 312.0, 312.0)),
    (r"A30\b", _tera(10.3, 82.0, 165.0, 165.0)),
    (r"A40\b", _tera(37.4, 74.8, 149.7, 149.7)),
    (r"A10\b", _tera(31.2, 62.5, 125.0, 125.0)),
    (r"RTX A6000", _tera(38.7, 77.4, 154.8, 154.8)),
    # NVIDIA H100 (2024), H200 (2024), GH200 (2024) data sheets, halved where they state sparsity
    (r"(H100|H200).*NVL", _tera(60.0, 417.5, 835.5, 835.5)),
    (r"H100.*PCIe", _tera(51.2, 378.0, 756.0, 756.0)),
    (r"GH200|H100|H200|H800", _tera(67.0, 494.7, 989.5, 989.5)),
    (r"\bH20\b", _tera(44.0, 74.0, 148.0, 148.0)),
    # NVIDIA L4 (2023), L40 (2023), L40S (2023) data sheets, halved where they state sparsity; Ada architecture paper v2
    (r"\bL40S", _tera(91.6, 183.0, 366.5, 366.5)),
    (r"\bL40\b", _tera(90.5, 90.5, 181.1, 181.1)),
    (r"\bL4\b", _tera(30.3, 60.5, 121.0, 121.0)),
    (r"RTX 6000 Ada", _tera(91.1, 182.1, 364.2, 364.2)),
    (r"RTX 4090", _tera(82.6, 82.6, 165.2, 165.2)),
    (r"RTX 3090", _tera(40.0, 40.0, 80.0, 80.0)),  # Ampere GA102 architecture paper, the Ti form
    # NVIDIA DGX B200 and GB200 NVL72 data sheets (2024), per GPU, dense
    (r"GB200", _tera(80.0, 1250.0, 2500.0, 2500.0)),
    (r"\bB200", _tera(80.0, 1125.0, 2250.0, 2250.0)),
    # AMD Instinct data sheets: MI50, MI60 (2018), MI100 (2020), MI210 (2022), MI250, MI250X (2021; each of the two dies
    # of a module is a device to torch, hence half of the module's figures)
    (r"MI50", _tera(13.4, fp16=26.8)),
    (r"MI60", _tera(14.7, fp16=29.5)),
    (r"MI100", _tera(46.1, bf16=92.3, fp16=184.6)),
    (r"MI210", _tera(45.3, bf16=181.0, fp16=181.0)),
    (r"MI250X", _tera(47.9, bf16=191.5, fp16=191.5)),
    (r"MI250", _tera(45.3, bf16=181.0, fp16=181.0)),
    # AMD Instinct MI300A, MI300X (2023), MI325X (2024), MI350X, MI355X (2025) data sheets
    (r"MI300A", _tera(122.6, 490.3, 980.6, 980.6)),
    (r"MI300X|MI308X|MI325X", _tera(163.4, 653.7, 1307.4, 1307.4)),
    (r"MI350X", _tera(144.2, bf16=2309.6, fp16=2309.6)),
    (r"MI355X", _tera(157.3, bf16=2516.6, fp16=2516.6)),
)

# No processor on sale runs faster (Intel Core i9-14900KS: 6.2 GHz). Used where the kernel does not report the clock.
HIGHEST_CLOCK_HZ = 6.2e9


def gpu_peak(name: str, dtype: str) -> Optional[float]:
    """Return the FLOP/s of one device of that name; None if it, or this dtype on it, is not in the table."""
    for pattern, rates in GPUS:
        if re.search(pattern, name, re.IGNORECASE):
            return rates.get(dtype)
    return None


def flop_per_cycle(flags: AbstractSet[str], dtype: str) -> Optional[int]:
    """Return the FLOP of one core in a cycle: units x lanes x 2 for a fused multiply-add, in its widest form on sale.

    Sources: Intel optimisation manual (AVX-512: two 512-bit units; AMX: 1,024 bf16 operations), AMD Zen 4 and Zen 5
    optimisation guides (two 512-bit units), Arm Neoverse V1/V2 and Fujitsu A64FX guides (two 512-bit or four 128-bit).
    """
    fp32 = next((flop for flag, flop in _FP32_FLOP if flag in flags), None)
    if dtype == "fp32" or fp32 is None:
        return fp32
    if dtype != "bf16":
        return None
    if "amx_bf16" in flags:
        return 1024
    return 4 * fp32 if "bf16" in flags else 2 * fp32


_FP32_FLOP = (("avx512f", 64), ("fma", 32), ("avx", 16), ("sse2", 8), ("sve", 64), ("asimd", 32))


def cpu_bound(dtype: str, root: str = "/") -> Optional[float]:
    """Return a bound of all cores of the node, in FLOP/s: cores x highest clock x FLOP per cycle.

    None on an unknown instruction set. A quota on processor time counts as fewer cores.
    """
    per_cycle = flop_per_cycle(cpu_flags(root), dtype)
    if per_cycle is None:
        return None
    cores = min(node_cores(root), cpu_quota(root) or math.inf)
    clock_hz = highest_clock_hz(root) or HIGHEST_CLOCK_HZ
    return cores * clock_hz * per_cycle
