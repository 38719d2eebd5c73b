"""What a platform's file says differently with one scheduler: its defaults, the keys it needs and those it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel

REMOTE_DEFAULTS: Mapping[str, object] = {"max_running": 8, "poll_s": 10.0}


def no_further_mistakes(keys: Mapping[str, object]) -> Iterable[tuple[str, str]]:
    """Find nothing: the default of `SchedulerKeys.check`."""
    return ()


@dataclass(frozen=True)
class SchedulerKeys:
    """What one scheduler makes of the keys of a platform's file.

    Attributes:
        defaults: values of keys that the file leaves out.
        needed: the keys that the file must have, and for each what a person should write.
        refused: the keys that mean nothing with this scheduler, and for each why, with the remedy.
        own: a pydantic model of what stands under the key that is named like the scheduler; the platform then has
            an attribute of that name. None: there is no such key, or `Platform` declares it itself.
        check: finds further mistakes in the file's mapping; returns pairs of a key and a sentence.
        image_below: the key of the file below which the `image:` of its jobs stands.
        this_machine: the jobs run on this machine, so `auto` may stand for device and layouts.
    """

    defaults: Mapping[str, object] = field(default_factory=lambda: REMOTE_DEFAULTS)
    needed: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    own: type[BaseModel] | None = None
    check: Callable[[Mapping[str, object]], Iterable[tuple[str, str]]] = no_further_mistakes
    image_below: str = "container"
    this_machine: bool = False
