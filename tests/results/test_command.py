"""A study beside the published results that it repeats."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tiny_studies import trained

from results.__main__ import main


def paper(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.fixture(scope="module")
def study_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a study of one head at length 8, barely trained."""
    folder = tmp_path_factory.mktemp("paper")
    source = (Path(__file__).parents[2] / "sweeps" / "retrieval_heads.py").read_text()
    small = [
        *("--set", "epochs=5"),
        *("--set", "samples=fixed"),
        *("--set", "heads=1"),
        *("--set", "replicates=3"),
    ]
    return trained(folder / "home", folder, source, "--preset", "smoke", *small, study="s").root


def test_a_study_stands_beside_what_it_repeats(study_home: Path) -> None:
    result = paper("s", "--home", str(study_home), "--json")
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert (content["setup"], content["comparable"]) == ("retrieval", True)
    (row,) = content["rows"]
    assert (row["printed"]["value"], row["n"], row["standing"]) == (0.0701, 3, "worse")
    assert len(content["missing"]) == 12
    assert "train for 5 epochs" in " ".join(content["assumptions"])


def test_people_see_a_study_beside_the_paper(study_home: Path) -> None:
    result = paper("s", "--home", str(study_home))
    assert result.exit_code == 0
    assert "1 worse than printed. 12 published values of it were not run" in result.stdout
    other = paper("s", "--home", str(study_home), "--as", "nearest_neighbor")
    assert "Not comparable with paper Q" in other.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["s", "--as", "nothing"], "unknown group of published results 'nothing'"),
        (["absent"], "no study called 'absent'"),
    ],
)
def test_what_cannot_be_compared_is_said(
    study_home: Path, arguments: list[str], message: str
) -> None:
    result = paper(*arguments, "--home", str(study_home))
    assert result.exit_code == 2
    assert message in result.stderr
