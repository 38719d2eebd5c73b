"""The errors that end a command. Each class has an exit code (docs/wire.md) and takes one sentence for the user."""

from __future__ import annotations

import sys


class CommandError(Exception):
    """The command cannot go on.

    Takes one string and nothing else, so that it can be pickled on its way out of a loader process. Its first line is
    the sentence; what a compiler or a device said itself may follow in more lines. `gate` is the name under which the
    wire reports it.
    """

    exit_code = 1
    gate = "failed"

    def __init__(self, text: str) -> None:
        super().__init__(text)


class CompileFailed(CommandError):
    """A compiler refused the model, so it is unknown how fast the compiled model would be."""

    exit_code = 4
    gate = "compile"


class DeviceOutOfMemory(CommandError):
    """The device's memory does not hold this local batch size."""

    exit_code = 5
    gate = "device_memory"


class LossNotFinite(CommandError):
    """The device ended the training because a number in it was not finite."""

    exit_code = 3
    gate = "loss_finite"


class DataCorrupt(CommandError):
    """A file of the data set cannot be read; the text names the file."""

    exit_code = 65
    gate = "data"


class DataMissing(CommandError):
    """The data set is not there; the text says where it should be and which command makes it."""

    exit_code = 66
    gate = "data"


class MachineFailed(CommandError):
    """The machine failed while the job ran, as when a cluster loses it or an IPU breaks. The job may begin again."""

    exit_code = 69
    gate = "machine"


class ImpossibleRequest(CommandError):
    """This machine or installation cannot do what was asked, or lacks a package. Raised before any training."""

    exit_code = 78
    gate = "request"


def first_line(message: object) -> str:
    return (str(message).strip() or "no text").splitlines()[0]


def with_message(sentence: str, error: BaseException) -> str:
    """Return the sentence, and below it the whole message of an error that has several lines."""
    message = str(error).strip()
    return f"{sentence}\n{message}" if "\n" in message else sentence


def not_importable(error: ImportError) -> ImpossibleRequest:
    """Turn the error of an import into one sentence: the package is missing, or it is there and broken."""
    name = str(error.name or "").partition(".")[0]
    package = {"PIL": "Pillow", "": "numpy torch Pillow h5py"}.get(name, name)
    if isinstance(error, ModuleNotFoundError):
        return ImpossibleRequest(f"the package {package} is missing in {sys.executable}; pip install {package}")

    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = lines[0] if lines else "it gives no reason"
    for line in lines:
        if line.startswith("Original error was"):  # numpy explains at length and gives the cause last
            cause = line
            break
    return ImpossibleRequest(
        f"a package cannot be imported in {sys.executable} ({cause}); pip install --force-reinstall {package}"
    )
