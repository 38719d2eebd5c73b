"""The number formats in which models are trained, by their words in --dtype."""

from __future__ import annotations

from typing import Any, Dict

import torch

TORCH_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# The reference's default for fp16 (mlcommons/training, resnet-tf2/resnet_runnable.py, default_for_fp16). A fixed factor
# keeps the program of a run the same every night, and torch's GradScaler would make the host wait for the device in
# every step.
FP16_LOSS_SCALE = 128.0
# Relative errors of sums of products of random numbers: 2e-7 to 1e-5 in fp32, 3e-4 in tf32 or fp16, 2e-3 in bf16.
ERRORS = (("fp32", 6e-5), ("tf32", 8e-4))
LESS_THAN = {"fp32": ("bf16", "tf32"), "tf32": ("bf16",)}


def multiplied_in(device: Any) -> Dict[str, str]:
    """Measure in which format a device multiplies fp32 numbers in a `product` and a `convolution`, beside float64.

    Libraries round the factors without a word if ONEDNN_DEFAULT_FPMATH_MODE or NVIDIA_TF32_OVERRIDE says so, which no
    switch of torch shows. Takes milliseconds.
    """
    random = torch.Generator().manual_seed(1)
    shapes = {"product": ((256, 256), (256, 256)), "convolution": ((1, 64, 28, 28), (64, 64, 3, 3))}
    kernels = {"product": torch.mm, "convolution": torch.nn.functional.conv2d}
    found = {}
    for name, kernel in kernels.items():
        factors = [torch.rand(shape, generator=random) - 0.5 for shape in shapes[name]]
        with torch.no_grad():
            exact = kernel(*(factor.double() for factor in factors))
            computed = kernel(*(factor.to(device) for factor in factors)).cpu()
        error = float((computed - exact).norm() / exact.norm())
        found[name] = next((dtype for dtype, most in ERRORS if error < most), "bf16")
    return found
