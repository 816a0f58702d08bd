"""A trial's key: the same for the same training, another one for any change that could matter."""

import dataclasses
import importlib
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import TinyModel, TinyTask, tiny_sweep

from hsweep import Recipe, UserError, epochs, grid, steps
from hsweep.planning.code import (
    SWEEP_FILE,
    changed_files,
    code_of,
    files_of,
    training_code,
)
from hsweep.planning.identity import content_hash, describe, key_of, parts_of
from hsweep.planning.plan import make_plan
from hsweep.seeding import replicate_seeds
from hsweep.workspace import load_sweep
from tasks.base import is_in_key, not_in_key

CLAIM = settings(deadline=None, derandomize=True, max_examples=100)
TESTS = Path(__file__).resolve().parents[1]


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Config:
    a: Any = 1
    b: Any = None


@dataclass(frozen=True)
class OtherConfig:
    a: Any = 1
    b: Any = None


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.tuples(inner, inner) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    | st.builds(Config, inner, inner),
    max_leaves=6,
)  # fmt: skip


class TestContentHash:
    @CLAIM
    @given(PLAIN)
    def test_equal_content_gives_equal_hashes(self, value: Any) -> None:
        assert content_hash(value) == content_hash(value)
        if isinstance(value, dict):
            assert content_hash(dict(reversed(value.items()))) == content_hash(value)

    @CLAIM
    @given(PLAIN, PLAIN)
    def test_different_content_gives_different_hashes(self, one: Any, other: Any) -> None:
        same_description = repr(describe(one)) == repr(describe(other))
        if one != other and not same_description:
            assert content_hash(one) != content_hash(other)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (1, True),
            (1, "1"),
            (None, "None"),
            ((1, 2), (2, 1)),
            (Config(), OtherConfig()),
            (Config(a=1, b=2), Config(a=2, b=1)),
        ],
    )
    def test_kinds_and_order_count(self, one: object, other: object) -> None:
        assert content_hash(one) != content_hash(other)

    def test_sets_have_no_order_and_enums_and_paths_are_plain(self) -> None:
        assert content_hash(frozenset({"x", "y", "z"})) == content_hash({"z", "y", "x"})
        assert describe({"c": Colour.RED, "p": Path("/data"), "t": (1, 2)}) == {
            "c": "red",
            "p": "/data",
            "t": [1, 2],
        }

    @pytest.mark.parametrize("part", [len, object(), lambda: 1, b"x"])
    def test_what_has_no_content_is_refused_by_name(self, part: object) -> None:
        with pytest.raises(UserError, match="frozen dataclass of plain values"):
            content_hash(Config(a=[part]))

    @pytest.mark.parametrize("part", [math.nan, math.inf])
    def test_what_is_not_finite_is_refused(self, part: float) -> None:
        with pytest.raises(UserError, match="finite"):
            content_hash(Config(a=[part]))

    def test_the_hash_is_what_it_was_when_studies_were_recorded(self) -> None:
        assert content_hash(Config(a=(1, 2.5, "x", None, True))) == "28fed6afbed807bb4814"


def parts_with(fingerprint: str, **content: Any) -> dict[str, str]:
    """The parts of a trial's key, by what it is made of."""
    code = {f"{name}_code": code_of(content[name]) for name in ("model", "task")}
    return parts_of(content, {**code, "training_code": training_code()}, fingerprint)[0]


def key(**changes: Any) -> str:
    parts: dict[str, Any] = {
        "model": TinyModel(2),
        "task": TinyTask(),
        "fingerprint": "f",
        "recipe": Recipe(),
        "budget": epochs(3),
    }
    seeds = changes.pop("seeds", replicate_seeds(0, 0))
    return key_of(parts_with(**{**parts, "seeds": seeds, **changes}))


@dataclass(frozen=True)
class ReadTask(TinyTask):
    """Reads a file; what is in it decides, not where it lies or how many processes read it."""

    path: str = not_in_key("")
    num_workers: int = not_in_key(4)

    def fingerprint(self) -> str:
        return Path(self.path).read_text()


CHANGED_RECIPES: dict[str, object] = {
    "lr": 2e-3,
    "batch_size": 128,
    "optimizer": "sgd",
    "betas": (0.9, 0.99),
    "weight_decay": 0.1,
    "warmup_fraction": 0.1,
    "warmup_steps": 10,
    "decay_fraction": 0.3,
    "warmup_lr": 1e-5,
    "schedule": "linear",
    "min_lr": 1e-5,
    "clip_norm": 1.0,
    "precision": "bfloat16",
    "compile": "on",
    "optimizer_args": {"eps": 1e-6},
    "layer_decay": 0.7,
    "accumulate": 2,
    "ema": 0.9,
    "label_smoothing": 0.1,
    "mixup": 0.8,
    "cutmix": 1.0,
}


class TestTrialKey:
    def test_it_is_a_letter_and_twenty_hexadecimal_digits(self) -> None:
        assert key() == key()
        assert key()[0] == "t"
        assert len(key()) == 21
        int(key()[1:], 16)

    @pytest.mark.parametrize(
        "change",
        [
            {"model": TinyModel(4)},
            {"model": TinyModel(2, dim=4)},
            {"model": TinyModel(2, heads=2)},
            {"task": TinyTask(dim=4)},
            {"task": TinyTask(num_train=31)},
            {"fingerprint": "g"},
            {"budget": epochs(4)},
            {"budget": epochs(3, report_every=2)},
            {"budget": steps(3)},
            {"seeds": replicate_seeds(0, 1)},
            {"seeds": replicate_seeds(1, 0)},
        ],
        ids=repr,
    )
    def test_whatever_determines_the_result_changes_it(self, change: dict[str, Any]) -> None:
        assert key(**change) != key()

    def test_every_field_of_the_recipe_changes_it(self) -> None:
        assert set(CHANGED_RECIPES) == {f.name for f in dataclasses.fields(Recipe) if is_in_key(f)}
        keys = {
            key(recipe=Recipe(**{name: value}))  # type: ignore[arg-type]
            for name, value in CHANGED_RECIPES.items()
        }
        assert len(keys | {key()}) == len(CHANGED_RECIPES) + 1

    def test_every_part_changes_it_and_accepted_code_counts_as_what_it_is_taken_for(self) -> None:
        content = {"model": TinyModel(2), "task": TinyTask(), "recipe": Recipe()}
        parts = parts_with("f", **content, budget=epochs(3), seeds=replicate_seeds(0, 0))
        changed = {name: {**parts, name: "another"} for name in parts}
        assert len({key_of(each) for each in changed.values()} | {key_of(parts)}) == len(parts) + 1
        for name, each in changed.items():
            assert (key_of(each, {"another": parts[name]}) == key_of(parts)) == ("code" in name)

    def test_where_data_lie_and_how_they_are_read_does_not(self, tmp_path: Path) -> None:
        (tmp_path / "one").write_text("content")
        (tmp_path / "copy").write_text("content")
        (tmp_path / "other").write_text("other")

        def planned(*names: str, **how: int) -> list[str]:
            sweep = tiny_sweep(
                space=grid(place=list(names)),
                task=lambda p: ReadTask(path=str(tmp_path / p.place), **how),
                model=TinyModel(2),
            )
            return [t.key for t in make_plan(sweep, preset="quick", study_seed=0).trials]

        assert planned("one") == planned("copy") == planned("one", num_workers=0)
        # Described alike, read apart: also within one plan.
        both = planned("one", "other")
        assert len(set(both)) == 2
        assert both == planned("one") + planned("other")
        (tmp_path / "one").write_text("changed")
        assert planned("one") != both[:1]

    def test_names_of_axes_do_not(self) -> None:
        def keys(sweep: Any) -> list[str]:
            return [t.key for t in make_plan(sweep, preset="quick", study_seed=0).trials]

        renamed = tiny_sweep(space=grid(size=[1, 2, 3]), model=lambda p: TinyModel(p.size))
        assert keys(renamed) == keys(tiny_sweep())

    def test_it_is_the_same_in_every_process_and_needs_no_ray_gpu_or_tracker(self) -> None:
        program = (
            "from tiny import *; from hsweep.planning.plan import make_plan; import sys, torch\n"
            "plan = make_plan(tiny_sweep(), preset='quick', study_seed=0)\n"
            "assert plan.to_json() and not torch.cuda.is_initialized()\n"
            "assert not {'ray', 'mlflow', 'optuna', 'pandas'} & set(sys.modules)\n"
            "print(*(trial.key for trial in plan.trials))"
        )
        planned = make_plan(tiny_sweep(), preset="quick", study_seed=0)
        printed = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": "7", "PYTHONPATH": f"{TESTS}", "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert printed.split() == [trial.key for trial in planned.trials]


SWEEP = '''"""A question."""
from dataclasses import dataclass
from typing import TYPE_CHECKING

import key_helper
from key_package.nets import scaled
from key_table import WIDTHS

from hsweep import grid
from tiny import TinyData, TinyModel, TinyTask, tiny_sweep

if TYPE_CHECKING:
    from torch import Tensor

LIMIT = 3
NAMES = {}
NAMES["a"] = 1


def limited(number):
    """Cut it."""
    return min(number, LIMIT)


@dataclass(frozen=True)
class Net(TinyModel):
    """A network."""

    def build(self):
        return key_helper.wrapped(super().build(), limited(7))  # here


@dataclass(frozen=True)
class Other(TinyModel):
    def build(self):
        return super().build()


class OwnData(TinyData):
    def loss(self, model, batch):
        _, inputs, outputs = batch
        return scaled((model(inputs) - outputs).abs().mean())


@dataclass(frozen=True)
class OwnTask(TinyTask):
    def open(self, *, data_seed, sampling_seed, batch_size, device):
        import key_generator

        data_seed = key_generator.shifted(data_seed)
        return OwnData(self, data_seed, sampling_seed, batch_size, device)


def model(p):
    return Other(p.width) if p.width > 9 else Net(p.width)


SPACE = grid(width=WIDTHS)
SWEEP = tiny_sweep(space=SPACE, task=OwnTask(), model=model, replicates=1)

if __name__ == "__main__":
    print(SWEEP)
'''
FILES = {
    "question.py": SWEEP,
    "key_helper.py": "from key_deeper import twice\ndef wrapped(net, n):\n    return twice(net)\n",
    "key_deeper.py": "def twice(net):\n    return net\n",
    "key_generator.py": "def shifted(seed):\n    return seed + 1\n",
    "key_table.py": "WIDTHS = [1, 2]\n",
    "key_package/__init__.py": "FACTOR = 2\n",
    "key_package/nets.py": "from . import parts\ndef scaled(x):\n    return parts.GAIN * x\n",
    "key_package/parts.py": "GAIN = 1\n",
    "key_package/unused.py": "GAIN = 5\n",
}
MODEL_CODE, TASK_CODE, BOTH = {"model_code"}, {"task_code"}, {"model_code", "task_code"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Write a project, some of its text replaced; return the first trial of its plan."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget() -> None:
        for name in [
            name for name in sys.modules if name.startswith(("key_", "hsweep.sweep_file"))
        ]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def planned(
        file: str = "", old: str = "", new: str = "", *, name: str = "question.py", **more: str
    ) -> Any:
        forget()
        files = {**FILES, name: SWEEP, **{f"{module}.py": text for module, text in more.items()}}
        if file:
            assert old in files[file]
            files[file] = files[file].replace(old, new)
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(exist_ok=True)
            (tmp_path / path).write_text(text)
        loaded = load_sweep(tmp_path / name)
        plan = make_plan(
            loaded.sweep, preset="quick", study_seed=0, sweep_module=loaded.module.__name__
        )
        return plan.trials[0]

    yield planned
    forget()


WRITTEN: list[Any] = []


def as_written(project: Callable[..., Any]) -> Any:
    """The first trial of the project with nothing replaced, wherever it lies."""
    WRITTEN[:] = WRITTEN or [project()]
    return WRITTEN[0]


def differing(one: Any, other: Any) -> set[str]:
    return {part for part in one.parts if one.parts[part] != other.parts[part]}


class TestUserCode:
    @pytest.mark.parametrize(
        ("file", "old", "new", "parts"),
        [
            ("question.py", "super().build(), lim", "super().build().eval(), lim", MODEL_CODE),
            ("question.py", "LIMIT = 3", "LIMIT = 4", MODEL_CODE),
            ("question.py", "min(number", "max(number", MODEL_CODE),
            ("question.py", ".abs()", ".square()", TASK_CODE),
            ("question.py", "NAMES = {}", "NAMES = {}\nprint(NAMES)", BOTH),
            ("question.py", "class OwnData(", "@print\ndef shown(): 2\nclass OwnData(", BOTH),
            ("key_helper.py", "return twice(net)", "return twice(twice(net))", MODEL_CODE),
            ("key_deeper.py", "return net", "return net.eval()", MODEL_CODE),
            ("key_generator.py", "+ 1", "+ 2", TASK_CODE),
            ("key_package/parts.py", "GAIN = 1", "GAIN = 2", TASK_CODE),
            ("key_package/__init__.py", "2", "3", TASK_CODE),
        ],
    )
    def test_what_a_trial_can_run_counts_and_the_file_is_known(
        self, project: Callable[..., Any], file: str, old: str, new: str, parts: set[str]
    ) -> None:
        before, after = as_written(project), project(file, old, new)
        assert differing(before, after) == parts
        assert after.key != before.key
        for part in parts if parts != BOTH else ():
            was, now = (files_of(each.parts[part]) or {} for each in (before, after))
            assert changed_files(was, now) == [SWEEP_FILE if file == "question.py" else file]

    @pytest.mark.parametrize(
        ("file", "old", "new"),
        [
            ("question.py", "# here", "# there"),
            ("question.py", '"""A network."""', '"""Another text."""'),
            ("question.py", '"""Cut it."""', '"""Cut it,\n    once more."""'),
            ("question.py", "LIMIT = 3", "LIMIT = (\n    3\n)"),
            ("question.py", "import Tensor", "import Tensor, nn"),
            ("question.py", "SPACE = grid(width=WIDTHS)", "SPACE = grid(width=WIDTHS + [4])"),
            ("question.py", "replicates=1", "replicates=2"),
            ("question.py", "class Other(TinyModel):\n", "class Other(TinyModel):\n    more = 1\n"),
            ("question.py", "p.width > 9", "p.width > 8"),
            ("question.py", 'NAMES["a"] = 1', 'NAMES["a"] = 1\n\n\n'),
            ("question.py", "print(SWEEP)", "print(SWEEP, SWEEP)"),
            ("key_table.py", "[1, 2]", "[1, 2, 3]"),
            ("key_package/unused.py", "5", "6"),
            ("key_deeper.py", "def twice(net):", "def twice(net):\n    '''Twice.'''"),
        ],
    )
    def test_what_it_cannot_run_does_not_nor_do_words(
        self, project: Callable[..., Any], file: str, old: str, new: str
    ) -> None:
        assert project(file, old, new).key == as_written(project).key

    def test_nor_does_the_name_of_the_sweep_file(self, project: Callable[..., Any]) -> None:
        assert project(name="renamed.py").key == as_written(project).key

    def test_a_module_whose_names_are_all_imported_counts(
        self, project: Callable[..., Any]
    ) -> None:
        star = ("question.py", "import key_helper", "import key_helper\nfrom key_star import *")
        trials = [project(*star, key_star=f"VALUE = {value}\n") for value in (1, 2)]
        assert differing(*trials) == BOTH

    def test_code_outside_of_the_installed_packages_counts_wherever_it_lies(
        self, project: Callable[..., Any], tmp_path: Path
    ) -> None:
        """As an editable install has it: a folder on the path, and not where packages go."""
        editable = tmp_path / "src"
        installed = tmp_path / "site-packages"
        for folder in (editable, installed):
            folder.mkdir()
            sys.path.append(str(folder))

        def changed(folder: Path, name: str) -> set[str]:
            trials = []
            for value in (1, 2):
                (folder / f"{name}.py").write_text(f"VALUE = {value}\n")
                helper = FILES["key_helper.py"].replace("(net)", f"(net) or {name}.VALUE")
                trials.append(project(key_helper=f"import {name}\n{helper}"))
            return differing(*trials)

        assert changed(editable, "key_editable") == MODEL_CODE
        assert changed(installed, "key_installed") == set()

    def test_packages_without_init_and_extensions_without_source_count(
        self, project: Callable[..., Any], tmp_path: Path
    ) -> None:
        (tmp_path / "key_space").mkdir()
        part, native = tmp_path / "key_space" / "part.py", tmp_path / "key_native.abi3.so"
        helper = (
            "def wrapped(net, n):\n    from key_space import part\n    return net\n"
            "def never():\n    import key_native\n"
        )

        def trial(constant: int, content: bytes) -> Any:
            part.write_text(f"VALUE = {constant}\n")
            native.write_bytes(content)
            return project(key_helper=helper)

        before = trial(1, b"compiled")
        assert differing(before, trial(2, b"compiled")) == MODEL_CODE
        assert differing(before, trial(1, b"another")) == MODEL_CODE
        names = {"key_space/part.py", "key_native.so"}
        assert names <= code_of(trial(1, b"compiled").model).files.keys()

    def test_a_class_that_stands_in_no_file_is_refused(self) -> None:
        for name in ("typed_in_a_console", "builtins"):
            space: dict[str, Any] = {"__name__": name}
            exec("class Net:\n    def build(self):\n        return None\n", space)
            with pytest.raises(UserError, match="Net stands in none"):
                code_of(space["Net"]())


class TestTrainingCode:
    def test_it_is_found_from_where_trials_are_opened(self) -> None:
        files = training_code().files
        for name in ("train", "optimizers", "opening"):
            assert f"hsweep/training/{name}.py" in files
        assert "hsweep/design/recipe.py" in files
        own = training_code(of_user=True).files
        for name in ("function", "script", "readers"):
            assert f"hsweep/training/own/{name}.py" in own.keys() - files.keys()
        assert "hsweep/training/trial_run.py" in own.keys() & files.keys()
        assert "hsweep/training/loop.py" not in own
        assert not any(name.startswith(("hsweep/planning", "hsweep/record")) for name in files)
        assert "hsweep/__init__.py" not in files
        assert "hsweep/errors.py" not in files

    def test_of_the_tool_nothing_else_is_code_of_a_model_or_task(self) -> None:
        files = {*code_of(TinyModel(2)).files, *code_of(TinyTask()).files}
        assert not [name for name in files if name.startswith("hsweep/")]
        assert "tasks/base.py" in files
