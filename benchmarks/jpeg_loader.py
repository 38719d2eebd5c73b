"""How many JPEGs one core turns into training samples: our loader beside the bare decoders, the usual and the paper's.

    python benchmarks/jpeg_loader.py [--samples 256] [--seconds 2] [--folder an/imagenet]

One process, one thread, files in the page cache. All kinds take turns, round by round, so that a busy machine slows
all of them; each figure is that of its best round. CPU time is the process's own; with a worker, of both together.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch
from PIL import Image

from models.data import jpeg
from models.data.file_list import read_file
from models.data.imagenet import ImageNet, open_folder
from models.data.sampling import StepSampler
from models.data.synthetic import write_set
from models.data.synthetic_resnet50 import recipe

SIZE = 224
BATCH = 32
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1), torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

Take = Callable[[int], object]


# --- what others do, with the same Pillow and torch ------------------------------------------------------------------


def normalised(image: Image.Image) -> torch.Tensor:
    """torchvision's ToTensor and Normalize."""
    tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().to(torch.float32).div(255)
    return tensor.sub_(MEAN).div_(STD)


def usual(path: str) -> torch.Tensor:
    """ImageFolder with RandomResizedCrop, RandomHorizontalFlip, ToTensor and Normalize."""
    with Path(path).open("rb") as file:
        image = Image.open(file).convert("RGB")
    for _ in range(10):
        area = image.width * image.height * random.uniform(0.08, 1)
        ratio = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3)))
        width, height = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if width <= image.width and height <= image.height:
            break
    width, height = min(width, image.width), min(height, image.height)
    left, top = random.randint(0, image.width - width), random.randint(0, image.height - height)
    image = image.crop((left, top, left + width, top + height)).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return normalised(image)


def papers(path: str) -> torch.Tensor:
    """What the HPDC'24 paper's code trains on: Resize(256), CenterCrop(224), ToTensor, Normalize."""
    with Path(path).open("rb") as file:
        image = Image.open(file).convert("RGB")
    scale = 256 / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
    left, top = (image.width - SIZE) // 2, (image.height - SIZE) // 2
    return normalised(image.crop((left, top, left + SIZE, top + SIZE)))


class Usual(torch.utils.data.Dataset):
    """The usual loader as a data set, for the same DataLoader."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __getitem__(self, key: tuple[int, int]) -> tuple[torch.Tensor, int]:
        return usual(self.paths[key[1]]), 0


# --- measuring -------------------------------------------------------------------------------------------------------


def cpu_s() -> float:
    """CPU seconds of this process and of its workers that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def one_by_one(take: Take, samples: int) -> Callable[[], int]:
    def round_() -> int:
        for index in range(samples):
            take(index)
        return samples

    return round_


def through_a_loader(data: object, samples: int) -> Callable[[], int]:
    """One worker, the default collation, four epochs, so that its start weighs little.

    The worker has ended when this returns, so its CPU time is known.
    """
    sampler = StepSampler(samples, local_batch=min(BATCH, samples), rank=0, world=1, accumulation=1, seed=0)
    batches = list(itertools.islice(sampler, 4 * sampler.steps_per_epoch))

    def round_() -> int:
        loader = torch.utils.data.DataLoader(data, batch_sampler=batches, num_workers=1, multiprocessing_context="fork")
        return sum(len(labels) for _, labels in loader)

    return round_


def measure(kinds: dict[str, Callable[[], int]], seconds: float) -> dict[str, tuple[float, float]]:
    """The best CPU and wall seconds per sample of each kind."""
    best = {name: (float("inf"), float("inf")) for name in kinds}
    for name, kind in kinds.items():  # once for imports and the page cache, not counted
        kind()
        print(f"\r{name:60}", end="", file=sys.stderr)
    deadline = time.perf_counter() + seconds * len(kinds)
    while time.perf_counter() < deadline:
        for name, kind in kinds.items():
            cpu, wall = cpu_s(), time.perf_counter()
            samples = kind()
            cpu, wall = (cpu_s() - cpu) / samples, (time.perf_counter() - wall) / samples
            best[name] = (min(best[name][0], cpu), min(best[name][1], wall))
    print(f"\r{'':60}\r", end="", file=sys.stderr)
    return best


def kinds_of(folder: str, samples: int) -> dict[str, tuple[Callable[[], int], str]]:
    """Each kind, with the kind of which its rate is given as a share."""
    sets: dict[str, ImageNet] = {
        f"{decoder} + {transforms}": open_folder(
            folder, image_size=SIZE, augment=True, seed=0, decoder=decoder, transforms=transforms
        )
        for decoder, transforms in (("pillow", "pillow"), ("simplejpeg", "pillow"), ("simplejpeg", "torch"))
        if decoder == "pillow" or not jpeg.simplejpeg_problem()
    }
    paths = [sets["pillow + pillow"].path(index) for index in range(samples)]
    contents = [read_file(os.fsencode(path)) for path in paths]
    kinds: dict[str, tuple[Callable[[], int], str]] = {
        "read the file": (one_by_one(lambda index: read_file(os.fsencode(paths[index])), samples), "")
    }
    for decoder in dict.fromkeys(name.split()[0] for name in sets):
        decode = jpeg.DECODERS[decoder]
        kinds[f"decode only: {decoder}"] = (one_by_one(lambda index, f=decode: f(contents[index]), samples), "")
    for name, data in sets.items():
        of = f"decode only: {name.split()[0]}"
        kinds[f"ours: {name}"] = (one_by_one(lambda index, data=data: data[(0, index)], samples), of)
    of = "decode only: pillow"
    kinds["usual: RandomResizedCrop to float32"] = (one_by_one(lambda index: usual(paths[index]), samples), of)
    kinds["the paper's: resize, centre crop, float32"] = (one_by_one(lambda index: papers(paths[index]), samples), of)
    for name, data in sets.items():
        kinds[f"1 worker, ours: {name}"] = (through_a_loader(data, samples), f"decode only: {name.split()[0]}")
    kinds["1 worker, usual"] = (through_a_loader(Usual(paths), samples), of)
    return kinds


def show(best: dict[str, tuple[float, float]], of: dict[str, str]) -> None:
    usual_cpu = best["usual: RandomResizedCrop to float32"][0]
    print(f"{'':44} {'CPU ms':>8} {'/s/core':>8} {'wall /s':>8} {'of decode':>10} {'of usual':>9}")
    for name, (cpu, wall) in best.items():
        share = f"{best[of[name]][0] / cpu:10.2f}" if of[name] else f"{'':10}"
        print(f"{name:44} {cpu * 1e3:8.3f} {1 / cpu:8.0f} {1 / wall:8.0f} {share} {usual_cpu / cpu:9.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each kind")
    parser.add_argument("--folder", help="an ImageNet folder; a synthetic one is made otherwise")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or f"{temporary}/set"
        if not options.folder:
            write_set(folder, recipe("quick", options.samples, 0))
        samples = min(options.samples, len(open_folder(folder, image_size=SIZE, augment=False, seed=0)))
        kinds = kinds_of(folder, samples)
        best = measure({name: kind for name, (kind, _) in kinds.items()}, options.seconds)
    decoder, _ = jpeg.versions("pillow", "pillow")
    print(f"{samples} JPEGs to {SIZE}x{SIZE}; {decoder}, torch {torch.__version__}, load {os.getloadavg()[0]:.1f}")
    show(best, {name: of for name, (_, of) in kinds.items()})


if __name__ == "__main__":
    main()
