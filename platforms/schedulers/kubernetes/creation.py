"""A job's objects, created so that a lost answer or a second submitter never makes two jobs of it."""

from __future__ import annotations

import base64
import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from platforms.job import JobSpec, MachineError, NoRoom, RefusedError, State, Status, names_a_secret
from platforms.schedulers.kubernetes import labels
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.resources import CONFIG_MAPS, SECRETS, Resource
from platforms.schedulers.kubernetes.state import kinds, reasons

CONFIG_MAP_BYTES = 1 << 20
NOT_AFTER = "HPC_ML_BENCH_NOT_AFTER"
Object = Mapping[str, Any]


def create(
    client: Client,
    spec: JobSpec,
    objects: Sequence[Object],
    text: Path,
    known_code: set[str],
    wall: Callable[[], float] = time.time,
) -> Mapping[str, Any]:
    """Everything that the job needs, its root last: once that is there, there is a job. Returns the root.

    `known_code` are the names of code archives that are there; what is brought is added.

    What another submitter has created under our name is ours. Objects beside the root become its dependents, so that
    they go when it goes.

    Raises:
        AwayError: nobody knows whether there is a job.
        NoRoom: a quota is used up.
        MachineError, RefusedError: the cluster refused it, in its own words; `text` is where the manifest lies.
    """
    *beside, wanted = (_dated(each, spec, wall) for each in objects)
    made: list[Mapping[str, Any]] = []
    try:
        if (name := _code(spec, objects)) and name not in known_code:
            _create(client, CONFIG_MAPS, _code_map(spec, name))
            known_code.add(name)
        made += [_create(client, SECRETS, each) for each in _secrets(spec, wanted)]
        made += [_create(client, client.resource(each["apiVersion"], each["kind"]), each) for each in beside]
        root = _create(client, client.resource(wanted["apiVersion"], wanted["kind"]), wanted)
        for each in made:
            _adopt(client, each, root)
    except ApiError as error:
        raise _refusal(error, spec, client, text) from None
    return root


def _create(client: Client, resource: Resource, wanted: Object) -> Mapping[str, Any]:
    """The object, made now or before. Raises ApiError, also when its name belongs to something else."""
    try:
        return client.create(resource, wanted)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        there = client.get(resource, wanted["metadata"]["name"])
        mine, its = (each["metadata"].get("labels", {}) for each in (wanted, there))
        if any(its.get(key) != mine.get(key) for key in (labels.MANAGED_BY, labels.JOB)):
            said = f"{error.message}, and it is not ours"
            raise ApiError(error.status, error.reason, said, error.causes) from None
        return there


def _adopt(client: Client, each: Mapping[str, Any], root: Mapping[str, Any]) -> None:
    owner = {"apiVersion": root["apiVersion"], "kind": root["kind"]}
    owner |= {key: root["metadata"][key] for key in ("name", "uid")}
    if owner["uid"] not in [owned.get("uid") for owned in each["metadata"].get("ownerReferences", ())]:
        resource = client.resource(each["apiVersion"], each["kind"])
        client.patch(resource, each["metadata"]["name"], {"metadata": {"ownerReferences": [owner]}})


def _dated(wanted: Object, spec: JobSpec, wall: Callable[[], float]) -> dict[str, Any]:
    """A copy whose containers know after which time they must not begin any more."""
    dated = copy.deepcopy(dict(wanted))
    for template in kinds.pod_templates(dated):
        for container in template["spec"]["containers"]:
            env = [each for each in container.get("env") or () if each.get("name") != NOT_AFTER]
            container["env"] = [*env, {"name": NOT_AFTER, "value": str(int(wall() + spec.start_limit_s))}]
    return dated


def _code(spec: JobSpec, objects: Sequence[Object]) -> str | None:
    """The name of the ConfigMap from which the job reads its code archive, if it does."""
    name = None if spec.archive is None else labels.config_map(spec.archive)
    return name if name in _config_maps(objects) else None


def _code_map(spec: JobSpec, name: str) -> dict[str, Any]:
    """The code archive, once per content and namespace: other jobs, of other runs too, read the same one."""
    assert spec.archive is not None
    content = spec.archive.read_bytes()
    if len(content) > CONFIG_MAP_BYTES:
        raise RefusedError(
            f"{spec.archive.name}: {len(content)} bytes are more than a ConfigMap holds ({CONFIG_MAP_BYTES}): put it "
            "into the image and write its path there as `kubernetes: {archive: …}`"
        )
    metadata = {"name": name, "labels": {labels.MANAGED_BY: labels.US}}
    data = {spec.archive.name: base64.b64encode(content).decode()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": data, "immutable": True}


def _config_maps(objects: Sequence[Object]) -> set[str]:
    pods = [template["spec"] for each in objects for template in kinds.pod_templates(each)]
    volumes = [volume for pod in pods for volume in pod.get("volumes") or ()]
    return {volume["configMap"]["name"] for volume in volumes if "name" in (volume.get("configMap") or {})}


def _secrets(spec: JobSpec, root: Object) -> Iterator[dict[str, Any]]:
    """What the manifest names and does not hold: variables that are called like secrets."""
    hidden = {name: value for name, value in spec.env.items() if names_a_secret(name)}
    if hidden:
        metadata = {"name": root["metadata"]["name"], "labels": dict(root["metadata"]["labels"])}
        yield {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": hidden}


def _refusal(error: ApiError, spec: JobSpec, client: Client, text: Path) -> Exception:
    quota = reasons.quota(error.message)
    said = f"{client.where}: {error.message if quota is None else quota.words}"
    if quota is not None and not quota.never:
        return NoRoom(said)
    state = State.SUBMIT_REFUSED if quota is None else State.NEVER_ADMISSIBLE
    reason = f"{said}; manifest: {text}"
    return MachineError(f"{spec.name}: {reason}", Status(state, reason), text.parent)
