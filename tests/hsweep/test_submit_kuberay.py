"""``hsweep submit kuberay``: what the manifest says, and that what it holds runs."""

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from click.testing import Result

from hsweep.clusters.kuberay import HOME, SWEEP_FOLDER
from hsweep.errors import ROOT
from hsweep.paths import Home
from hsweep.record.study import StudyFolder

Invoke = Callable[..., Result]

SWEEP = '''"""A tiny question, in "quotes": and a colon.\t"""
from shapes_beside import WIDTHS
from hsweep import grid
from tiny import tiny_sweep

SWEEP = tiny_sweep(space=grid(width=WIDTHS))
'''
FIELDS = {
    "": {"apiVersion", "kind", "metadata", "spec"},
    "spec": {"entrypoint", "shutdownAfterJobFinishes", "backoffLimit", "rayClusterSpec"},
    "rayClusterSpec": {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"},
    "headGroupSpec": {"rayStartParams", "template"},
    "workerGroupSpecs": {
        *("groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template")
    },
    "authOptions": {"mode"},
}
"""Fields that are written, by the field they stand in, which KubeRay's reference of ray.io/v1 has
with these types. Nobody has handed the manifest to a KubeRay yet."""


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Another test's, in another folder.
    monkeypatch.delitem(sys.modules, "shapes_beside", raising=False)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "shapes_beside.py").write_text("WIDTHS = [1, 2]\n# ends without a line break")
    (folder / "my_sweep.py").write_text(SWEEP)
    return folder / "my_sweep.py"


def documents(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return list(yaml.safe_load_all(result.stdout))


def named(content: Any, field: str = "") -> Iterator[tuple[str, set[str]]]:
    """Yield the fields in each of KubeRay's own."""
    for part in content if isinstance(content, list) else [content]:
        if field in FIELDS:
            yield field, set(part)
            for name, value in part.items():
                yield from named(value, name)


def pods(job: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [group["template"]["spec"] for group in groups]


def test_the_manifest_has_the_pods_that_were_asked_for(hsweep: Invoke, sweep: Path) -> None:
    _, job = documents(
        hsweep(
            *("submit", "kuberay", sweep, "--image", "registry/hsweep:1", "--study", "My_Heads.2"),
            *("--workers", 3, "--gpus-per-worker", 8, "--cpus-per-worker", 32),
            *("--memory-per-worker", "200Gi", "--storage", "s3://bucket/hsweep"),
            *("--storage-secret", "s3-keys", "--service-account", "trainer"),
        )
    )
    assert list(named(job)) == [(field, FIELDS[field]) for field, _ in named(job)]
    assert {field for field, _ in named(job)} == FIELDS.keys()
    assert job["metadata"] == {"name": "my-heads-2"}
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["rayVersion"] == ray.__version__
    assert cluster["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    (workers,) = cluster["workerGroupSpecs"]
    assert [workers[name] for name in ("replicas", "minReplicas", "maxReplicas")] == [3, 3, 3]
    for pod in pods(job):
        (container,) = pod["containers"]
        assert container["image"] == "registry/hsweep:1"
        assert container["envFrom"] == [{"secretRef": {"name": "s3-keys"}}]
        assert pod["serviceAccountName"] == "trainer"
        assert {mount["name"] for mount in container["volumeMounts"]} == {"sweep"}
        assert container["resources"]["requests"] == container["resources"]["limits"]
    size = {"cpu": 32, "memory": "200Gi", "nvidia.com/gpu": 8}
    assert pods(job)[1]["containers"][0]["resources"]["limits"] == size
    assert job["spec"]["backoffLimit"] == 0


def test_the_entrypoint_runs_the_files_that_travel_with_it(
    hsweep: Invoke, sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sweep.parent)  # where torch.ops says that its file is, too
    sweep_map, job = documents(
        hsweep(
            *("submit", "kuberay", sweep, "--image", "i", "--claim", "team-disk"),
            *("--runner", "inline", "--no-check", "--tag", "team=a b", "--set", "epochs=2"),
            *("--track", "tensorboard"),
        )
    )
    head, workers = pods(job)
    assert head["volumes"] == workers["volumes"]
    places = {mount["name"]: mount["mountPath"] for mount in head["containers"][0]["volumeMounts"]}
    assert places == {"sweep": SWEEP_FOLDER, "home": HOME}
    claim = {"name": "home", "persistentVolumeClaim": {"claimName": "team-disk"}}
    config = {"name": "sweep", "configMap": {"name": sweep_map["metadata"]["name"]}}
    assert head["volumes"] == [config, claim]
    assert sweep_map["data"].keys() == {"my_sweep.py", "shapes_beside.py"}
    there = tmp_path / "there"
    there.mkdir()
    for name, text in sweep_map["data"].items():
        (there / name).write_text(text)
        assert text == (sweep.parent / name).read_text()
    program, *words = shlex.split(job["spec"]["entrypoint"])
    assert program == "hsweep"
    done = hsweep(
        *(
            word.replace(SWEEP_FOLDER, str(there)).replace(HOME, str(tmp_path / "h"))
            for word in words
        )
    )
    assert done.exit_code == 0, done.output
    study = StudyFolder.open(Home(tmp_path / "h"), "tiny-quick")
    assert study.status()["state"] == "complete"
    assert study.manifest.tags["team"] == "a b"
    assert study.manifest.track == ["tensorboard"]


def test_a_sweep_that_comes_with_hsweep_needs_no_files(hsweep: Invoke) -> None:
    (job,) = documents(
        hsweep("submit", "kuberay", "vit_lean", "--image", "i", "--storage", "gs://bucket/h")
    )
    assert job["spec"]["entrypoint"].startswith("hsweep run vit_lean --study vit_lean-")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "pods keep nothing: give --claim NAME for a volume with the home, or --storage URI"),
        (["--claim", "c", "--set", "hight=2"], "hight"),
        (["--claim", "c", "--storage", "s3://key:secret@bucket/x"], "must hold no password"),
    ],
)
def test_what_cannot_run_is_refused(
    hsweep: Invoke, sweep: Path, options: list[str], told: str
) -> None:
    refused = hsweep("submit", "kuberay", sweep, "--image", "i", *options)
    assert refused.exit_code == 2
    assert told in refused.stderr


def test_files_in_folders_are_refused(hsweep: Invoke, sweep: Path) -> None:
    (sweep.parent / "below").mkdir()
    (sweep.parent / "below" / "__init__.py").write_text("WIDTHS = [1]\n")
    sweep.write_text(SWEEP.replace("shapes_beside", "below"))
    refused = hsweep("submit", "kuberay", sweep, "--image", "i", "--claim", "c")
    assert refused.exit_code == 2
    assert "is not beside the sweep" in refused.stderr


def test_the_image_copies_what_is_there() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
