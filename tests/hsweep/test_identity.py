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
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import TinyModel, TinyTask, tiny_sweep

from hsweep import Recipe, UserError, epochs, grid, steps
from hsweep.planning.identity import (
    _modules_hash,
    _source_hash,
    code_version,
    content_hash,
    describe,
    training_code_version,
    trial_key,
)
from hsweep.planning.plan import make_plan
from hsweep.seeding import replicate_seeds

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


def key(**changes: Any) -> str:
    parts: dict[str, Any] = {
        "model": TinyModel(2),
        "task": TinyTask(),
        "fingerprint": "f",
        "recipe": Recipe(),
        "budget": epochs(3),
        "seeds": replicate_seeds(0, 0),
    }
    return trial_key(**{**parts, **changes})


CHANGED_RECIPES: dict[str, object] = {
    "lr": 2e-3,
    "batch_size": 128,
    "optimizer": "sgd",
    "betas": (0.9, 0.99),
    "weight_decay": 0.1,
    "warmup_fraction": 0.1,
    "warmup_lr": 1e-5,
    "schedule": "linear",
    "min_lr": 1e-5,
    "clip_norm": 1.0,
    "precision": "bfloat16",
    "compile": "on",
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
        assert set(CHANGED_RECIPES) == {f.name for f in dataclasses.fields(Recipe)}
        keys = {
            key(recipe=Recipe(**{name: value}))  # type: ignore[arg-type]
            for name, value in CHANGED_RECIPES.items()
        }
        assert len(keys | {key()}) == len(CHANGED_RECIPES) + 1

    @CLAIM
    @given(PLAIN, PLAIN, PLAIN, PLAIN)
    def test_its_parts_written_one_by_one_are_what_all_of_it_is_written_as(
        self, model: Any, task: Any, recipe: Any, fingerprint: Any
    ) -> None:
        parts = {"model": model, "task": task, "recipe": recipe, "budget": 3, "seeds": (1, 2.0)}
        code = {
            "model_code": code_version(model),
            "task_code": code_version(task),
            "training_code": training_code_version(),
        }
        together = content_hash({"format": 1, "data": fingerprint, **parts, **code})
        assert trial_key(fingerprint=fingerprint, **parts) == "t" + together

    def test_names_of_axes_do_not(self) -> None:
        def keys(sweep: Any) -> list[str]:
            return [t.key for t in make_plan(sweep, preset="quick", study_seed=0).trials]

        renamed = tiny_sweep(space=grid(size=[1, 2, 3]), model=lambda p: TinyModel(p.size))
        assert keys(renamed) == keys(tiny_sweep())

    def test_it_is_the_same_in_every_process(self) -> None:
        program = (
            "from tiny import *; from hsweep.planning.plan import make_plan\n"
            "print(*(t.key for t in make_plan(tiny_sweep(), preset='quick', study_seed=0).trials))"
        )
        planned = make_plan(tiny_sweep(), preset="quick", study_seed=0)
        printed = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": "7", "PYTHONPATH": f"{TESTS}"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert printed.split() == [trial.key for trial in planned.trials]


MODEL = '''
"""A model."""
from dataclasses import dataclass
import models.zz_helper
from models import zz_other


@dataclass(frozen=True)
class Model:
    """What it is."""

    width: int = 2  # the width

    def build(self):
        """Build it."""
        return models.zz_helper.twice(self.width) + zz_other.ONE
'''


@pytest.fixture
def project_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Write modules into a ``models`` package's path; return the version of the class there."""
    import models

    monkeypatch.setattr(models, "__path__", [*models.__path__, str(tmp_path)])
    names = {
        "zz_model": MODEL,
        "zz_helper": "def twice(n):\n    return 2 * n\n",
        "zz_other": "ONE = 1\n",
        "zz_unrelated": "TWO = 2\n",
    }

    def version(**edits: str) -> str:
        for name, source in {**names, **edits}.items():
            (tmp_path / f"{name}.py").write_text(source)
            sys.modules.pop(f"models.{name}", None)
        importlib.invalidate_caches()
        _modules_hash.cache_clear()
        _source_hash.cache_clear()
        return code_version(importlib.import_module("models.zz_model").Model())

    yield version
    for name in names:
        sys.modules.pop(f"models.{name}", None)
        vars(models).pop(name, None)
    _modules_hash.cache_clear()


class TestProjectCode:
    @pytest.mark.parametrize(
        ("module", "old", "new"),
        [
            ("zz_model", "+ zz_other", "- zz_other"),
            ("zz_model", "width: int = 2", "width: int = 3"),
            ("zz_helper", "2 * n", "3 * n"),
            ("zz_other", "ONE = 1", "ONE = 2"),
        ],
    )
    def test_an_edit_of_it_or_of_what_it_imports_changes_the_version(
        self, project_code: Callable[..., str], module: str, old: str, new: str
    ) -> None:
        sources = {"zz_model": MODEL, "zz_helper": "def twice(n):\n    return 2 * n\n"}
        source = sources.get(module, "ONE = 1\n")
        before = project_code()
        assert old in source
        assert project_code(**{module: source.replace(old, new)}) != before
        assert project_code() == before

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("# the width", "# its width"),
            ('"""What it is."""', '"""What it was."""'),
            ('"""Build it."""', '"""Build it,\n        anew."""'),
            ('"""A model."""', '"""Another text."""'),
            ("width: int = 2  #", "width: int = (\n        2\n    )  #"),
        ],
    )
    def test_comments_docstrings_and_layout_do_not(
        self, project_code: Callable[..., str], old: str, new: str
    ) -> None:
        before = project_code()
        assert old in MODEL
        assert project_code(zz_model=MODEL.replace(old, new)) == before

    def test_nor_does_code_that_it_does_not_import(self, project_code: Callable[..., str]) -> None:
        assert project_code() == project_code(zz_unrelated="TWO = 3\n")


class TestUserCode:
    def load(self, folder: Path, source: str) -> ModuleType:
        path = folder / "own_model.py"
        path.write_text(source)
        sys.modules.pop("own_model", None)
        importlib.invalidate_caches()
        import linecache

        linecache.clearcache()
        return importlib.import_module("own_model")

    def test_the_class_counts_and_its_comments_do_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        source = "class Own:\n    '''Text.'''\n    def build(self):\n        return 1  # one\n"
        before = code_version(self.load(tmp_path, source).Own())
        commented = source.replace("# one", "# two").replace("Text", "Words")
        assert code_version(self.load(tmp_path, commented).Own()) == before
        edited = source.replace("return 1", "return 22")
        assert code_version(self.load(tmp_path, edited).Own()) != before
        sys.modules.pop("own_model", None)
