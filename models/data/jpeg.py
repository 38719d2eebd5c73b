"""Turns the bytes of one JPEG into a square of uint8 pixels: decoders, the choice of the cut, and pixel operations.

Decoders: `simplejpeg` where it is installed (about 15 % faster), else `pillow`; the environment variable
HPC_ML_BENCH_DECODER chooses. Both are libjpeg-turbo with the same settings and gave the same bits for every baseline,
progressive, grayscale and 4:2:0 to 4:4:4 JPEG tried; a Pillow built on another libjpeg may not. Pillow decodes what
simplejpeg refuses: CMYK, the PNG among ImageNet's JPEGs, stray bytes. libjpeg-turbo itself can decode the box of a cut
alone, but neither of the two offers that.

Pixel operations (HPC_ML_BENCH_TRANSFORMS): `torchvision`, its functions on PIL images, where torchvision imports
unaided; `pillow`, the same bits without it; `torch`, torch's vectorised uint8 resize, taken after simplejpeg where the
CPU has AVX2 and torch is 2.1 or newer: a third of the time, and at most one grey level from the other two.
"""

from __future__ import annotations

import functools
import io
import math
import os
import random
import sys
from typing import Any, Callable, Dict, NamedTuple, Tuple, Union

import numpy as np
import torch
from PIL import Image, features
from PIL import __version__ as pillow_version

from models.errors import ImpossibleRequest

Picture = Union[Image.Image, "np.ndarray[Any, np.dtype[np.uint8]]"]

# MLPerf's reference (resnet-tf2, imagenet_preprocessing.py) hands these to TensorFlow's sample_distorted_bounding_box.
AREA = 0.05
COVERED = 0.1
ASPECT = (0.75, 1.33)
TRIES = 100
EVALUATION_SHORT_SIDE = 256 / 224


class Cut(NamedTuple):
    """How a picture is cut: the box (left, top, width, height) is resized to wide x high pixels.

    Of these the square that begins at (x, y) is kept, mirrored if `flip`.
    """

    left: int
    top: int
    width: int
    height: int
    wide: int
    high: int
    x: int
    y: int
    flip: bool


def random_cut(draw: Callable[[], float], width: int, height: int, size: int) -> Cut:
    """Return the reference's augmentation: a distorted box resized to the square, mirrored half of the time.

    As TensorFlow draws it: the aspect ratio is uniform in 0.75 … 1.33, then the *height* is uniform between what gives
    5 % of the area and what fits. A folder has no object boxes, so the whole picture is the object, and of the object
    the reference wants a tenth covered. After 100 misses the picture is taken whole. `draw`: uniform in [0, 1).
    """
    for _ in range(TRIES):
        aspect = ASPECT[0] + (ASPECT[1] - ASPECT[0]) * draw()
        most = min(height, int(width / aspect))
        least = min(most, round(math.sqrt(AREA * width * height / aspect)))
        high = least + int(draw() * (most - least + 1))
        wide = min(width, round(high * aspect))
        if high * wide > 0 and high * wide >= COVERED * width * height:
            left = int(draw() * (width - wide + 1))
            top = int(draw() * (height - high + 1))
            return Cut(left, top, wide, high, size, size, 0, 0, draw() < 0.5)
    return Cut(0, 0, width, height, size, size, 0, 0, draw() < 0.5)


def centre_cut(width: int, height: int, size: int) -> Cut:
    """Return the evaluation transform: the short side resized to size * 256 / 224, the square cut from the middle."""
    short = round(size * EVALUATION_SHORT_SIDE)
    if width <= height:
        wide = short
        high = int(short * height / width)
    else:
        wide = int(short * width / height)
        high = short
    return Cut(0, 0, width, height, wide, high, round((wide - size) / 2), round((high - size) / 2), False)


# --- decoders --------------------------------------------------------------------------------------------------------


def decode_pillow(data: bytes) -> Picture:
    """Return RGB pixels of a JPEG or PNG of any colour space. Raises what Pillow raises."""
    image = Image.open(io.BytesIO(data), formats=("JPEG", "PNG"))
    image.load()
    return image if image.mode == "RGB" else image.convert("RGB")


def decode_simplejpeg(data: bytes) -> Picture:
    """Return the same through simplejpeg, or through Pillow if simplejpeg refuses the picture."""
    import simplejpeg

    try:
        return simplejpeg.decode_jpeg(data, "RGB")
    except ValueError:
        return decode_pillow(data)


# --- pixel operations ------------------------------------------------------------------------------------------------


def _image(picture: Picture, cut: Cut) -> Image.Image:
    """Return the box of the cut as a PIL image; of an array only the box is converted."""
    left, top, right, bottom = cut.left, cut.top, cut.left + cut.width, cut.top + cut.height
    if not isinstance(picture, Image.Image):
        return Image.fromarray(picture[top:bottom, left:right])
    return picture if picture.size == (cut.width, cut.height) else picture.crop((left, top, right, bottom))


def with_pillow(picture: Picture, cut: Cut, size: int) -> torch.Tensor:
    image = _image(picture, cut).resize((cut.wide, cut.high), Image.Resampling.BILINEAR)
    if image.size != (size, size):
        image = image.crop((cut.x, cut.y, cut.x + size, cut.y + size))
    if cut.flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(image))


def with_torchvision(picture: Picture, cut: Cut, size: int) -> torch.Tensor:
    import torchvision.transforms.functional as operations

    bilinear = operations.InterpolationMode.BILINEAR
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    shape = [cut.high, cut.wide]
    image = operations.resized_crop(image, cut.top, cut.left, cut.height, cut.width, shape, bilinear)
    if image.size != (size, size):
        image = operations.crop(image, cut.y, cut.x, size, size)
    if cut.flip:
        image = operations.hflip(image)
    return torch.from_numpy(np.array(image))


def with_torch(picture: Picture, cut: Cut, size: int) -> torch.Tensor:
    array = np.array(picture) if isinstance(picture, Image.Image) else picture
    box = array[cut.top : cut.top + cut.height, cut.left : cut.left + cut.width]
    pixels = (
        torch.from_numpy(box).unsqueeze(0).permute(0, 3, 1, 2)
    )  # in this order torch sees channels_last and keeps it
    pixels = torch.nn.functional.interpolate(
        pixels, (cut.high, cut.wide), mode="bilinear", align_corners=False, antialias=True
    )
    pixels = pixels[0, :, cut.y : cut.y + size, cut.x : cut.x + size].permute(1, 2, 0)
    return (pixels.flip(1) if cut.flip else pixels).contiguous()


# --- which of them is used --------------------------------------------------------------------------------------------

DECODERS: Dict[str, Callable[[bytes], Picture]] = {"pillow": decode_pillow, "simplejpeg": decode_simplejpeg}
TRANSFORMS: Dict[str, Callable[[Picture, Cut, int], torch.Tensor]] = {
    "pillow": with_pillow,
    "torchvision": with_torchvision,
    "torch": with_torch,
}


@functools.lru_cache(maxsize=None)
def torchvision_problem() -> str:
    """Return why torchvision cannot be imported, "" if it can. Tried once: a failed import leaves modules behind."""
    try:
        import torchvision.transforms.functional  # noqa: F401
    except Exception as error:  # its wheel beside a torch without CUDA raises RuntimeError, not ImportError
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        return f"{type(error).__name__}: {error}"
    return ""


@functools.lru_cache(maxsize=None)
def simplejpeg_problem() -> str:
    """Return why simplejpeg cannot be imported, "" if it can."""
    try:
        import simplejpeg  # noqa: F401
    except ImportError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def torch_resizes() -> bool:
    """Tell whether this torch resizes uint8 correctly; 2.0.1 was up to 170 levels off."""
    return tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 1)


def torch_is_fast() -> bool:
    """Tell whether its resize is vectorised too; without AVX2 Pillow's is twice as fast."""
    return torch_resizes() and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


def choose_decoder(wish: str = "") -> str:
    """Return `pillow` or `simplejpeg`. Raises ImpossibleRequest.

    wish: by default HPC_ML_BENCH_DECODER, which defaults to auto.
    """
    wish = _wish(wish, "HPC_ML_BENCH_DECODER", DECODERS)
    if wish == "auto":
        return "pillow" if simplejpeg_problem() else "simplejpeg"
    if wish == "simplejpeg" and simplejpeg_problem():
        raise ImpossibleRequest(
            f"the decoder simplejpeg cannot be used ({simplejpeg_problem()}): pip install simplejpeg"
        )
    return wish


def choose_transforms(decoder: str, wish: str = "") -> str:
    """Return `pillow`, `torchvision` or `torch`. Raises ImpossibleRequest.

    wish: by default HPC_ML_BENCH_TRANSFORMS, which defaults to auto.
    """
    wish = _wish(wish, "HPC_ML_BENCH_TRANSFORMS", TRANSFORMS)
    if wish == "auto" and decoder == "simplejpeg" and torch_is_fast():
        return "torch"
    if wish == "auto":
        return "pillow" if torchvision_problem() else "torchvision"
    if wish == "torch" and not torch_resizes():
        raise ImpossibleRequest(
            f"torch {torch.__version__} does not resize uint8 pixels correctly (2.1 does): unset "
            "HPC_ML_BENCH_TRANSFORMS"
        )
    if wish == "torchvision" and torchvision_problem():
        raise ImpossibleRequest(
            f"torchvision cannot be imported ({torchvision_problem()}): unset HPC_ML_BENCH_TRANSFORMS, Pillow gives "
            f"the same pixels"
        )
    return wish


def versions(decoder: str, transforms: str) -> Tuple[str, str]:
    """Return both with their versions, as in `pillow 13.0.0 libjpeg-turbo 3.2.0` and `torchvision 0.28.0`."""
    turbo = features.version("libjpeg_turbo")
    library = f"libjpeg-turbo {turbo}" if turbo else f"libjpeg {features.version('jpg')}"
    pillow = f"pillow {pillow_version}"
    decoding = f"{pillow} {library}" if decoder == "pillow" else f"simplejpeg {sys.modules['simplejpeg'].__version__}"
    if transforms == "pillow":
        return decoding, pillow
    return decoding, f"{transforms} {sys.modules[transforms].__version__}"


def generator(seed: int, epoch: int, index: int) -> random.Random:
    """Return the random numbers of one sample; they do not depend on workers or ranks."""
    return random.Random(seed << 64 | epoch << 32 | index)


def _wish(wish: str, variable: str, choices: Dict[str, Any]) -> str:
    wish = wish or os.environ.get(variable, "") or "auto"
    if wish not in choices and wish != "auto":
        raise ImpossibleRequest(f"{variable}={wish} is unknown: use auto, {', '.join(choices)}")
    return wish
