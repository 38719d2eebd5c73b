"""The number formats in which models are trained, by their words in --dtype."""

from __future__ import annotations

import torch

TORCH_DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# The reference's default for fp16 (mlcommons/training, resnet-tf2/resnet_runnable.py, default_for_fp16). A fixed factor
# keeps the program of a run the same every night, and torch's GradScaler would make the host wait for the device in
# every step.
FP16_LOSS_SCALE = 128.0
