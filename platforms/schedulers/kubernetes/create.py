"""A job's objects, created so that a lost answer or a second submitter never makes two jobs of it."""

from __future__ import annotations

import base64
import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """A job's root, and what of the objects beside it does not go when that goes."""

    root: Object
    unowned: tuple[Object, ...] = ()


def create_job(
    client: Client,
    spec: JobSpec,
    objects: Sequence[Object],
    text: Path,
    known_code: set[str],
    wall: Callable[[], float] = time.time,
) -> CreatedJob:
    """Everything that the job needs, its root last: once that is there, there is a job, and nothing is refused
    any more.

    `known_code` are the names of code archives that are there; what is brought is added.

    What another submitter has created under our name is ours. Objects beside the root come before it, since its pods
    want them when they start, and become its dependents, so that they go when it goes. Where no job comes of it, those
    that were made here are deleted.

    Raises:
        AwayError: nobody knows whether there is a job.
        NoRoom: a quota is used up, and there is none.
        MachineError, RefusedError: the cluster refused it, in its own words; `text` is where the manifest lies.
    """
    *beside, wanted = (_dated(each, spec, wall) for each in objects)
    all_of_it = [*_secrets(spec, wanted), *beside, wanted]
    there: list[Object] = []
    new: list[Object] = []  # what of it has been made here
    try:
        resources = [client.resource(each["apiVersion"], each["kind"]) for each in all_of_it]
        if (name := _code(spec, objects)) and name not in known_code:
            _create(client, CONFIG_MAPS, _code_map(spec, name), [])
            known_code.add(name)
        for resource, each in zip(resources, all_of_it, strict=True):
            there.append(_create(client, resource, each, new))
    except ApiError as error:
        left = _take_back(client, new)
        raise _refusal(error, spec, client, f"{left}; manifest: {text}", text.parent) from None
    *others, root = there
    return CreatedJob(root, tuple(each for each in others if not _owned(client, each, root)))


def undo_creation(client: Client, made: CreatedJob) -> str:
    """Delete a job that nobody can follow. Returns what became of it, for people."""
    try:
        for each in (made.root, *made.unowned):
            client.delete(_resource(client, each), each["metadata"]["name"], uid=each["metadata"]["uid"])
    except (ApiError, AwayError) as error:
        typed = client.kubectl_command(f"delete {_resource(client, made.root).kubectl}/{made.root['metadata']['name']}")
        return f"the job may still run, since it could not be deleted either ({error}): {typed}"
    return "the job was deleted again"


def _create(client: Client, resource: Resource, wanted: Object, new: list[Object]) -> Object:
    """The object, made now and added to `new`, or made before. Raises ApiError, also when its name belongs to somebody
    else, and AwayError."""
    try:
        new.append(client.create(resource, wanted))
    except ApiError as error:
        # Whatever it says: a quota is asked before names are, and what uses it up may be this very object, made by a
        # request whose answer was lost.
        return _before(client, resource, wanted, error)
    return new[-1]


def _before(client: Client, resource: Resource, wanted: Object, refused: ApiError) -> Object:
    """The object that is there already. Raises the refusal where none of ours is, AwayError where it has just gone."""
    exists = refused.reason == "AlreadyExists"
    try:
        there = client.get(resource, wanted["metadata"]["name"])
    except ApiError as error:
        if exists and error.status == 404:
            raise AwayError(f"{client.where}: {refused.message}, and then it did not any more") from None
        raise (error if exists else refused) from None
    mine, its = (each["metadata"].get("labels", {}) for each in (wanted, there))
    if all(its.get(key) == mine.get(key) for key in (labels.MANAGED_BY, labels.JOB)):
        return there
    said = f"{refused.message}, and it is not ours" if exists else refused.message
    raise ApiError(refused.status, refused.reason, said, refused.causes) from None


def _owned(client: Client, each: Object, root: Object) -> bool:
    """Whether it goes when the root goes, from now on. Clusters may want the right to delete it for that."""
    owner = {"apiVersion": root["apiVersion"], "kind": root["kind"]}
    owner |= {key: root["metadata"][key] for key in ("name", "uid")}
    if owner["uid"] in [owned.get("uid") for owned in each["metadata"].get("ownerReferences", ())]:
        return True
    patch = {"metadata": {"ownerReferences": [owner]}}
    try:
        client.patch(_resource(client, each), each["metadata"]["name"], patch)
    except (ApiError, AwayError):
        return False
    return True


def _take_back(client: Client, made: Sequence[Object]) -> str:
    """Delete what no job needs, unless somebody has changed it since: another submitter may have made it his job's.
    Returns what is left, for people, and before it a semicolon."""
    left = []
    for each in made:
        resource, metadata = _resource(client, each), each["metadata"]
        try:
            client.delete(resource, metadata["name"], uid=metadata["uid"], version=metadata["resourceVersion"])
        except (ApiError, AwayError):
            left.append(f"{resource.kubectl}/{metadata['name']}")
    return f"; left there: {', '.join(left)}" if left else ""


def _resource(client: Client, each: Object) -> Resource:
    return client.resource(each["apiVersion"], each["kind"])


def _dated(wanted: Object, spec: JobSpec, wall: Callable[[], float]) -> dict[str, Any]:
    """A copy whose containers know after which time they must not begin any more."""
    dated = copy.deepcopy(dict(wanted))
    for _path, template in templates(dated):
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
    if why := launch.too_large(spec):
        raise RefusedError(why)
    metadata = {"name": name, "labels": {labels.MANAGED_BY: labels.OUR_NAME}}
    data = {spec.archive.name: base64.b64encode(spec.archive.read_bytes()).decode()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": data, "immutable": True}


def _config_maps(objects: Sequence[Object]) -> set[str]:
    pods = [template["spec"] for each in objects for _path, template in templates(each)]
    volumes = [volume for pod in pods for volume in pod.get("volumes") or ()]
    return {volume["configMap"]["name"] for volume in volumes if "name" in (volume.get("configMap") or {})}


def _secrets(spec: JobSpec, root: Object) -> Iterator[dict[str, Any]]:
    """What the manifest names and does not hold: variables that are called like secrets."""
    hidden = {name: value for name, value in spec.env.items() if names_a_secret(name)}
    if hidden:
        metadata = {"name": root["metadata"]["name"], "labels": dict(root["metadata"]["labels"])}
        yield {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": hidden}


def _refusal(error: ApiError, spec: JobSpec, client: Client, more: str, folder: Path) -> Exception:
    """`more` is for people and follows the reason."""
    quota = reasons.quota_refusal(error.message)
    said = f"{client.where}: {error.message if quota is None else quota.message}"
    if quota is not None and not quota.never:
        return NoRoom(said)
    state = State.SUBMIT_REFUSED if quota is None else State.NEVER_ADMISSIBLE
    reason = f"{said}{more}"
    return MachineError(f"{spec.name}: {reason}", Status(state, reason), folder)
