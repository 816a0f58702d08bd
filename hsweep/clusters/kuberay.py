"""A study as a RayJob: KubeRay starts a Ray on pods of its own, and ends it with the study."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from shlex import join
from typing import Any, Final

import click
from yaml import SafeDumper, dump_all

from hsweep.options import option

SWEEP_FOLDER: Final = "/hsweep/sweep"
"""Where pods have the sweep file and the modules beside it."""
HOME: Final = "/hsweep/home"
"""Where pods have the home, on a volume that outlives them."""
_MAX_NAME: Final = 40
"""Characters; KubeRay makes longer names of it, and Kubernetes takes 63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """The pods of a job: the workers, and one for the driver, which trains nothing."""

    image: str = option("", required=True, help="Has hsweep and what the sweep imports.")
    workers: int = option(1, type=click.IntRange(1), show_default=True)
    cpus_per_worker: int = option(4, type=click.IntRange(1), show_default=True)
    gpus_per_worker: int = option(0, type=click.IntRange(0), show_default=True)
    memory_per_worker: str = option("16Gi", metavar="SIZE", show_default=True)
    claim: str | None = option(
        None, metavar="NAME", help="A PersistentVolumeClaim that all pods mount: holds the home."
    )
    storage_secret: str | None = option(
        None, metavar="NAME", help="A Secret whose entries are variables of all pods."
    )
    service_account: str | None = option(None, metavar="NAME", help="Of all pods.")


def manifest(study: str, pods: Pods, command: Sequence[str], files: Mapping[str, str]) -> str:
    """Return the YAML of a job that runs a command, and of the ``files`` in ``SWEEP_FOLDER``."""
    name = re.sub("[^a-z0-9]+", "-", study.lower()).strip("-")[:_MAX_NAME].strip("-")
    sources = {SWEEP_FOLDER: {"configMap": {"name": f"{name}-sweep"}}} if files else {}
    if pods.claim:
        sources[HOME] = {"persistentVolumeClaim": {"claimName": pods.claim}}
    names = {path: path.rpartition("/")[2] for path in sources}
    mounts = [{"name": names[path], "mountPath": path} for path in sources]
    volumes = [{"name": names[path], **source} for path, source in sources.items()]
    secret = [{"secretRef": {"name": pods.storage_secret}}] if pods.storage_secret else []
    account = {"serviceAccountName": pods.service_account} if pods.service_account else {}

    def group(role: str, start: Mapping[str, str], size: Mapping[str, Any]) -> dict[str, Any]:
        container = {
            "name": f"ray-{role}",
            "image": pods.image,
            "resources": {"requests": size, "limits": size},
            "envFrom": secret,
            "volumeMounts": mounts,
        }
        spec = {**account, "containers": [container], "volumes": volumes}
        return {"rayStartParams": start, "template": {"spec": spec}}

    size = {"cpu": pods.cpus_per_worker, "memory": pods.memory_per_worker}
    if pods.gpus_per_worker:
        size["nvidia.com/gpu"] = pods.gpus_per_worker
    counts = dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), pods.workers)
    job = {
        "entrypoint": join(command),
        "shutdownAfterJobFinishes": True,
        # Another try has pods of its own: it goes on where the home has outlived the first ones.
        "backoffLimit": 3 if pods.claim else 0,
        "rayClusterSpec": {
            "rayVersion": version("ray"),
            "authOptions": {"mode": "token"},
            "headGroupSpec": group("head", {"num-cpus": "0"}, {"cpu": 2, "memory": "8Gi"}),
            "workerGroupSpecs": [{"groupName": "workers", **counts, **group("worker", {}, size)}],
        },
    }
    parts = [{"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name}, "spec": job}]
    if files:
        head = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-sweep"}}
        parts.insert(0, {**head, "data": files})
    text: str = dump_all(parts, Dumper=_READABLE, sort_keys=False, allow_unicode=True)
    return text


_READABLE: Any = type("_Readable", (SafeDumper,), {"ignore_aliases": lambda *_: True})
"""Writes lines as lines, and what occurs twice twice."""
_READABLE.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, "|" if "\n" in text else None
    ),
)
