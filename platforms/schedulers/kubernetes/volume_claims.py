"""Create the PersistentVolumeClaims that a platform names and the cluster does not have yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from platforms.job import RefusedError
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.resources import CLAIMS
from platforms.schedulers.kubernetes.objects import labels

if TYPE_CHECKING:
    from platforms.config.keys import VolumeKeys
    from platforms.config.schema import Platform


def create_missing(client: Client, platform: Platform) -> Iterator[str]:
    """Create each missing claim that has a `size:`, and yield a sentence about it. Existing claims stay as they are.

    Raises RefusedError if a missing claim has no size, or if the cluster refuses it.
    """
    for volume in platform.kubernetes.volumes:
        if volume.pvc is None:
            continue
        try:
            client.get(CLAIMS, volume.pvc)
        except ApiError as error:
            if error.status == 403:  # if it exists, pods can mount it all the same
                yield f"{client.where}: claim {volume.pvc} cannot be checked: {error.message}"
            elif error.status != 404:
                raise RefusedError(f"{client.where}: claim {volume.pvc}: {error.message}") from None
            else:
                yield _create(client, platform, volume)


def _create(client: Client, platform: Platform, volume: VolumeKeys) -> str:
    if volume.size is None:
        raise RefusedError(
            f"{client.where}: there is no claim {volume.pvc}, which {platform.source} mounts at {volume.mount}: create "
            "it, or write `size: 100Gi` beside it and `prepare` does"
        )
    spec: dict[str, object] = {
        "accessModes": [volume.access_mode],
        "resources": {"requests": {"storage": volume.size}},
    }
    if volume.storage_class is not None:
        spec["storageClassName"] = volume.storage_class
    # without the platform's label, because it holds data and is no leftover of a run
    metadata = {"name": volume.pvc, "labels": {labels.MANAGED_BY: labels.OUR_NAME}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
    try:
        client.create(CLAIMS, claim)
    except ApiError as error:
        if error.status != 409:
            raise RefusedError(f"{client.where}: claim {volume.pvc}: {error.message}") from None
    kind = f" of class {volume.storage_class}" if volume.storage_class else ""
    return f"{client.where}: claim {volume.pvc}: {volume.size}{kind}, {volume.access_mode}: made"
