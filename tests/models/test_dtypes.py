"""In which format a device really multiplies: libraries may round the factors without a word."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from models import checks, dtypes
from models.accelerators.cpu import Cpu

# bits of the mantissa that are left of a factor in fp32
BITS = {"fp32": 23, "tf32": 10, "bf16": 7}


class AsIfOn(torch.overrides.TorchFunctionMode):
    """Products or convolutions of fp32 as hardware computes them that takes factors in less."""

    def __init__(self, kernel: object, dtype: str) -> None:
        super().__init__()
        self._kernel, self._step = kernel, 1 << (23 - BITS[dtype])

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is self._kernel and args[0].dtype is torch.float32:
            args = [((part.view(torch.int32) + self._step // 2) & -self._step).view(torch.float32) for part in args]
        return function(*args, **(kwargs or {}))


class Alone:
    """The only rank."""

    def gather(self, value: object) -> list[object]:
        return [value]


def warnings(dtype: str) -> tuple[list[str], dict[str, str]]:
    request = SimpleNamespace(dtype=dtype)
    setup = SimpleNamespace(accelerator=Cpu(), request=request, multiplied_in={})
    return checks.multiplied_in(Alone(), setup), setup.multiplied_in


@pytest.mark.parametrize("found", BITS)
@pytest.mark.parametrize("kernel", ["product", "convolution"])
def test_the_format_of_each_kernel_is_found(kernel: str, found: str) -> None:
    function = {"product": torch.mm, "convolution": torch.nn.functional.conv2d}[kernel]
    with AsIfOn(function, found):
        formats = dtypes.multiplied_in(torch.device("cpu"))
    assert formats == {"product": "fp32", "convolution": "fp32", kernel: found}


@pytest.mark.parametrize(
    ("dtype", "found", "is_less"),
    [
        ("fp32", "fp32", False), ("fp32", "tf32", True), ("fp32", "bf16", True), ("tf32", "tf32", False),
        ("tf32", "bf16", True), ("bf16", "bf16", False), ("fp16", "bf16", False),
    ],
)  # fmt: skip
def test_less_than_the_dtype_says_is_a_warning(dtype: str, found: str, is_less: bool) -> None:
    with AsIfOn(torch.nn.functional.conv2d, found):
        said, formats = warnings(dtype)
    assert formats["convolution"] == found
    assert [line.startswith(f"less than {dtype}: rank 0 computes a convolution in {found} (") for line in said] == (
        [True] * is_less
    )


def test_what_is_multiplied_changes_nothing_of_a_run() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    dtypes.multiplied_in(torch.device("cpu"))
    assert torch.equal(torch.rand(3), expected)
