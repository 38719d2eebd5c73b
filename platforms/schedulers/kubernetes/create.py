"""Creates a job's objects so that a lost answer or a second submitter never makes two jobs of it."""

from __future__ import annotations

import base64
import copy
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platforms.job import AwayError, JobSpec, MachineError, NoRoom, RefusedError, State, Status, names_a_secret
from platforms.schedulers.kubernetes.api.client import ApiError, Client
from platforms.schedulers.kubernetes.api.resources import CONFIG_MAPS, Resource
from platforms.schedulers.kubernetes.manifest import launch
from platforms.schedulers.kubernetes.objects import labels
from platforms.schedulers.kubernetes.objects.pod_templates import templates
from platforms.schedulers.kubernetes.status import reasons

NOT_AFTER = "HPC_ML_BENCH_NOT_AFTER"
Object = Mapping[str, Any]


@dataclass(frozen=True)
class CreatedJob:
    """A job's root, and the objects beside it that are not deleted together with it."""

    root: Object
    unowned: tuple[Object, ...] = ()


def create_job(
    client: Client, spec: JobSpec, objects: Sequence[Object], text: Path, known_code: set[str]
) -> CreatedJob:
    """Create everything that the job needs, its root last: once the root exists, there is a job.

    `known_code` holds the names of the code archives that exist; a new one is added. `text` is the manifest's file,
    which errors name.

    An object that another submitter has created under our name counts as ours. Objects beside the root come before it,
    since its pods need them when they start. They then become its dependents, so that they are deleted with it. If no
    job is created, the objects that were created here are deleted.

    Raises:
        AwayError: it is unknown whether the job exists.
        NoRoom: a quota is used up, and there is no job.
        MachineError, RefusedError: the cluster refused it; the message is the cluster's.
    """
    *beside, wanted_root = [_with_start_limit(obj, spec) for obj in objects]
    wanted = [*_secrets(spec, wanted_root), *beside, wanted_root]
    existing: list[Object] = []
    new: list[Object] = []  # those that are created here
    try:
        resources = [_resource(client, obj) for obj in wanted]
        code_name = _code_name(spec, objects)
        if code_name is not None and code_name not in known_code:
            try:
                _create(client, CONFIG_MAPS, _code_map(spec, code_name), [])
            except ApiError:
                if spec.archive is not None:
                    raise
                # the mount is optional, and only facts of the nodes are missing without it
            known_code.add(code_name)
        for resource, obj in zip(resources, wanted, strict=True):
            existing.append(_create(client, resource, obj, new))
    except ApiError as error:
        left = _take_back(client, new)
        raise _refusal(error, spec, client, f"{left}; manifest: {text}", text.parent) from None
    *others, root = existing
    unowned = [obj for obj in others if not _make_dependent(client, obj, root)]
    return CreatedJob(root, tuple(unowned))


def _create(client: Client, resource: Resource, wanted: Object, new: list[Object]) -> Object:
    """Create an object, add it to `new` and return it; or return the one of ours that exists.

    Raises ApiError, also when the object of that name is not ours, and AwayError.
    """
    try:
        created = client.create(resource, wanted)
    except ApiError as error:
        # Whatever the error says, the object may exist: the server checks quotas before names, and this very object,
        # created by a request whose answer was lost, may use the quota up.
        return _existing(client, resource, wanted, error)
    new.append(created)
    return created


def _existing(client: Client, resource: Resource, wanted: Object, refused: ApiError) -> Object:
    """Return the object of ours that exists. Raises the refusal if there is none, AwayError if it has just gone."""
    exists = refused.status == 409
    try:
        there = client.get(resource, wanted["metadata"]["name"])
    except ApiError as error:
        if exists and error.status == 404:
            raise AwayError(f"{client.where}: {refused.message}, and then it did not any more") from None
        raise (error if exists else refused) from None
    # Labels may be changed on the way into the cluster. Those of its pod templates, or the selector of a Service, stay.
    job_label = json.dumps({labels.JOB: wanted["metadata"].get("labels", {}).get(labels.JOB)})[1:-1]
    its_text = json.dumps(there)
    same_code = "binaryData" in wanted and there.get("binaryData") == wanted["binaryData"]
    lost_its_labels = NOT_AFTER in its_text and json.dumps(labels.JOB) not in its_text
    if job_label in its_text or lost_its_labels or same_code:
        return there
    message = f"{refused.message}, and it is not ours" if exists else refused.message
    raise ApiError(refused.status, message) from None


def _make_dependent(client: Client, obj: Object, root: Object) -> bool:
    """Make an object a dependent of the root, so that it is deleted with it. Returns whether it is one now.

    Some clusters demand the right to delete the object for that.
    """
    owner = {
        "apiVersion": root["apiVersion"],
        "kind": root["kind"],
        "name": root["metadata"]["name"],
        "uid": root["metadata"]["uid"],
    }
    if owner["uid"] in [reference.get("uid") for reference in obj["metadata"].get("ownerReferences", ())]:
        return True
    patch = {"metadata": {"ownerReferences": [owner]}}
    try:
        client.patch(_resource(client, obj), obj["metadata"]["name"], patch)
    except (ApiError, AwayError):
        return False
    return True


def _take_back(client: Client, created: Sequence[Object]) -> str:
    """Delete objects that no job needs, unless they were changed: another submitter may have made them its job's.

    Returns "", or a part of a sentence about those that are left.
    """
    left = []
    for obj in created:
        resource = _resource(client, obj)
        metadata = obj["metadata"]
        try:
            client.delete(resource, metadata["name"], uid=metadata["uid"], version=metadata["resourceVersion"])
        except (ApiError, AwayError):
            left.append(f"{resource.kubectl}/{metadata['name']}")
    return f"; left there: {', '.join(left)}" if left else ""


def _resource(client: Client, obj: Object) -> Resource:
    return client.resource(obj["apiVersion"], obj["kind"])


def _with_start_limit(wanted: Object, spec: JobSpec) -> dict[str, Any]:
    """Return a copy whose containers know after which time they must not begin any more."""
    limited = copy.deepcopy(dict(wanted))
    for _path, template in templates(limited):
        for container in template["spec"]["containers"]:
            env = [variable for variable in container.get("env") or () if variable.get("name") != NOT_AFTER]
            container["env"] = [*env, {"name": NOT_AFTER, "value": str(int(time.time() + spec.start_limit_s))}]
    return limited


def _code_name(spec: JobSpec, objects: Sequence[Object]) -> str | None:
    """Return the name of the ConfigMap from which the job reads its code archive, or None if it reads none."""
    if spec.code is None:
        return None
    name = labels.config_map(spec.code)
    return name if name in _mounted_config_maps(objects) else None


def _code_map(spec: JobSpec, name: str) -> dict[str, Any]:
    """Return the ConfigMap of the code archive. Jobs of all runs in the namespace share one for the same content."""
    assert spec.code is not None
    if why := launch.too_large(spec):
        raise RefusedError(why)
    metadata = {"name": name, "labels": {labels.MANAGED_BY: labels.OUR_NAME}}
    data = {spec.code.name: base64.b64encode(spec.code.read_bytes()).decode()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": data, "immutable": True}


def _mounted_config_maps(objects: Sequence[Object]) -> set[str]:
    names = set()
    for obj in objects:
        for _path, template in templates(obj):
            for volume in template["spec"].get("volumes") or ():
                config_map = volume.get("configMap") or {}
                if "name" in config_map:
                    names.add(config_map["name"])
    return names


def _secrets(spec: JobSpec, root: Object) -> Iterator[dict[str, Any]]:
    """Yield the Secret of variables whose names are those of secrets: the manifest names it and does not hold it."""
    hidden = {name: value for name, value in spec.env.items() if names_a_secret(name)}
    if hidden:
        metadata = {"name": root["metadata"]["name"], "labels": dict(root["metadata"]["labels"])}
        yield {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": hidden}


def _refusal(error: ApiError, spec: JobSpec, client: Client, more: str, folder: Path) -> Exception:
    """Return the error for a refused job. `more` follows the reason in its message."""
    quota = reasons.quota_refusal(error.message)
    state = State.SUBMIT_REFUSED
    message = error.message
    if quota is not None:
        state = State.NEVER_ADMISSIBLE
        message = quota.message
    if quota is not None and not quota.never:
        return NoRoom(f"{client.where}: {message}")
    reason = f"{client.where}: {message}{more}"
    return MachineError(f"{spec.name}: {reason}", Status(state, reason), folder)
