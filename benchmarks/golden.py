"""What the tool says and computes, written down, so that another tree can be held against it.

    python -m benchmarks.golden OUTDIR                  # write down the tree this module lies in
    python -m benchmarks.golden OUTDIR --only plans     # a part (repeat it): see PARTS
    python -m benchmarks.golden --compare A B           # every difference of two of these

A and B are folders, or packed files as `benchmarks/golden/808cc40.json.xz`, which holds the outputs
commit 808cc40 with Python 3.11 and torch 2.13 on two cores of an x86 machine (AMD EPYC). Values
to the bit are those of a processor and its libraries: on another machine take both sides there. An
older tree without this module gets it by `cp -r benchmarks/golden* TREE/benchmarks/`; where
its interface differs, the sweeps `benchmarks/golden_*.py` are adapted to it. `bits` is held to
every digit, everything else to nine.

What differs from run to run is left out: times, hosts, paths, versions, and the names of trials,
which are numbered in the order they appear.

The benchmarks `study`, `overhead` and `analysis` are not part of this: they are compared by running
both trees in turn on the same machine, each from a worktree of its own, and the older one with the
newer benchmarks (`cp -r NEW/benchmarks BASE/`), which measure the command line. The made-up studies
of `analysis` are written by `large_studies.py`, which speaks to the record: BASE keeps its own.

    for tree in BASE NEW BASE NEW; do (cd $tree; .venv/bin/python -m benchmarks study); done
"""

import ast
import json
import lzma
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import click

ROOT: Final = Path(__file__).resolve().parents[1]
STUDIES: Final = (
    ("retrieval", "quick"),
    ("retrieval", "optuna"),
    ("shapes", "quick"),
    ("function", "quick"),
)
BITS: Final = (("shapes", "streams"), ("text", "quick"))
KINDS: Final = {"retrieval-quick": ("pareto", "effects"), "shapes-quick": ("pareto", "effects")}
"""Further questions that are put to a study, by its name."""
CALIBRATION: Final = (
    ("plain", ("--sweeps", "8", "--draws", "200")),
    ("varied", ("--sweeps", "4", "--draws", "200", "--varied")),
)
PACKAGES: Final = ("hsweep", "analysis", "models", "tasks")
ERRORS: Final = frozenset(
    {"UserError", "ValueError", "DataError", "BadParameter", "UsageError", "ClickException"}
)
VOLATILE: Final = re.compile(
    r"(^|_)(seconds|time|times|started|ended|created|host|pid|version|versions|folder|path|home|"
    r"report|uri|commit|speed|memory_peak|updated|code|wait)($|_)|per_second$"
)
KEY: Final = re.compile(r"\bt[0-9a-f]{20}\b")
"""The name of a trial."""
DURATION: Final = re.compile(r"\b\d+(\.\d+)? (ms|s|min|h)\b")
MOST_SHOWN: Final = 3


def command(*words: str, home: Path) -> str:
    """Return what a program of this tree prints on standard output; where it refuses what is asked,
    the reason as JSON.

    Raises:
        RuntimeError: it failed; with what it printed on standard error.
    """
    data = home / "no-data"
    data.mkdir(parents=True, exist_ok=True)
    variables = {"HSWEEP_DATA": str(data), "HSWEEP_HOME": str(home), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        env={**os.environ, **variables, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 2:
        return json.dumps({"refused": done.stderr})
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(words)} failed with {done.returncode}: {done.stderr}")
    return done.stdout


class Normalizer:
    """Takes out what differs from run to run; one for each file, since it numbers trials."""

    def __init__(self, home: Path, digits: int) -> None:
        self._home = str(home)
        self._digits = digits
        self._keys: dict[str, str] = {}

    def __call__(self, content: Any) -> Any:
        """Return JSON content without it."""
        if isinstance(content, Mapping):
            return {
                self._text(name): self(value)
                for name, value in content.items()
                if not VOLATILE.search(name)
            }
        if isinstance(content, list):
            return [self(value) for value in content]
        if isinstance(content, float):
            return float(f"{content:.{self._digits}g}")
        return self._text(content) if isinstance(content, str) else content

    def _text(self, text: str) -> str:
        text = text.replace(self._home, "HOME").replace(str(ROOT), "TREE")
        text = KEY.sub(lambda key: self._keys.setdefault(key[0], f"t{len(self._keys)}"), text)
        return DURATION.sub("TIME", text)


def plans(home: Path) -> Iterator[tuple[str, Any]]:
    """The plan of every preset of every sweep that comes with the tool."""
    for file in sorted((ROOT / "sweeps").glob("[a-z]*.py")):
        presets = import_module(f"sweeps.{file.stem}").SWEEP.presets
        for preset in ("quick", *(name for name in presets if name != "quick")):
            text = command("hsweep", "plan", str(file), "--preset", preset, "--json", home=home)
            yield f"plans/{file.stem}-{preset}", json.loads(text)


def studies(home: Path) -> Iterator[tuple[str, Any]]:
    """Four finished studies as shown and analysed, and the reports of two more to the bit."""
    for sweep, preset in (*STUDIES, *BITS):
        name = f"{sweep}-{preset}"
        options = ("--preset", preset, "--study", name, "--runner", "inline", "--no-reuse")
        command(
            "hsweep", "run", str(ROOT / "benchmarks" / f"golden_{sweep}.py"), *options, home=home
        )
        if (sweep, preset) in BITS:
            file = home / f"{name}.json"
            command("hsweep", "export", name, str(file), "--what", "reports", home=home)
            yield f"bits/{name}", json.loads(file.read_text())
            continue
        yield (
            f"studies/{name}-show",
            json.loads(command("hsweep", "show", name, "--json", home=home)),
        )
        for kind in ("", *KINDS.get(name, ())):
            asked = ("--kind", kind) if kind else ()
            text = command("hsweep", "analyze", name, *asked, "--json", home=home)
            yield f"studies/{name}-analyze{kind and '-'}{kind}", json.loads(text or "null")


def errors(home: Path) -> Iterator[tuple[str, Any]]:
    """The texts of all errors for a user, by package; a placeholder stands for what is put in."""
    del home
    for package in PACKAGES:
        texts = {
            f"{_name(node.func)}: {' | '.join(map(_template, node.args))}"
            for file in sorted((ROOT / package).rglob("*.py"))
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Call) and _name(node.func) in ERRORS
        }
        yield f"errors/{package}", sorted(texts)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _template(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _template(node.left) + _template(node.right)
    return "{}"


def calibration(home: Path) -> Iterator[tuple[str, Any]]:
    """The scores of every family of simulated sweeps, few of each."""
    for name, options in CALIBRATION:
        words = ("benchmarks", "calibration", "--json", *options)
        content = json.loads(command(*words, home=home))
        rows = (row for row in content["rows"] if "seconds" not in row["quantity"])
        content["rows"] = {row.pop("quantity"): row for row in rows}
        yield f"calibration/{name}", content


PARTS: Final[Mapping[str, Callable[[Path], Iterator[tuple[str, Any]]]]] = {
    "errors": errors,
    "plans": plans,
    "studies": studies,
    "calibration": calibration,
}


def write(folder: Path, parts: Iterator[str]) -> None:
    """Write the outputs of this tree into files below ``folder``."""
    for part in parts:
        with tempfile.TemporaryDirectory(prefix="golden-") as home:
            for name, content in PARTS[part](Path(home)):
                normal = Normalizer(Path(home), 17 if name.startswith("bits/") else 9)
                file = folder / f"{name}.json"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(normal(content), indent=1) + "\n")
                click.echo(file)


def read(place: Path) -> dict[str, Any]:
    """Return the content of all files of a folder or a packed file, by their names."""
    if place.is_dir():
        return {
            str(file.relative_to(place)): json.loads(file.read_text())
            for file in sorted(place.rglob("*.json"))
        }
    with lzma.open(place, "rt") as file:
        return dict(json.load(file))


def leaves(content: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Return every value with the names that lead to it; of texts in a list each is its name."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            yield from leaves(value, (*path, name))
    elif isinstance(content, list) and content and all(isinstance(each, str) for each in content):
        for value in content:
            yield (*path, "[]", value), True
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from leaves(value, (*path, f"[{number}]"))
    else:
        yield path, content


def differences(before: Any, after: Any) -> dict[str, list[str]]:
    """Return what differs, each in words, by the place of it with its numbers left out."""
    old, new = dict(leaves(before)), dict(leaves(after))
    found: dict[str, list[str]] = {}
    for path in dict.fromkeys([*old, *new]):
        if path in old and path in new and old[path] == new[path]:
            continue
        where = ".".join("[]" if part[:1] == "[" else part for part in path)
        if "[]" in path:
            where = ".".join(path[: path.index("[]") + 1])
            said = f"{'gone' if path in old else 'new'}: {path[-1]}"
        elif path not in new:
            said = f"gone: {'.'.join(path)} = {old[path]!r}"
        elif path not in old:
            said = f"new: {'.'.join(path)} = {new[path]!r}"
        else:
            said = f"{'.'.join(path)}: {old[path]!r} -> {new[path]!r}"
        found.setdefault(where, []).append(said)
    return found


def compare(before: Path, after: Path, most: int) -> bool:
    """Print every difference, like ones together; return whether there are none.

    Args:
        before: outputs of one tree.
        after: outputs of the other.
        most: differences of one place of a file that are printed; how many more there are is said.
    """
    old, new = read(before), read(after)
    alike = True
    for name in dict.fromkeys([*old, *new]):
        if name not in old or name not in new:
            click.echo(f"\n{name}: only in {before if name in old else after}")
            alike = False
            continue
        found = differences(old[name], new[name])
        if not found:
            continue
        alike = False
        click.echo(f"\n{name}")
        for where, said in found.items():
            lists = where.endswith("[]")
            for each in said if lists else said[:most]:
                click.echo(f"  {f'{where} ' if lists else ''}{each}")
            if len(said) > most and not lists:
                click.echo(f"    ... {len(said) - most} more of {where}")
    click.echo("\nno difference" if alike else "")
    return alike


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--only", type=click.Choice(list(PARTS)), multiple=True, help="Parts; all without.")
@click.option("--compare", "sides", type=click.Path(exists=True, path_type=Path), nargs=2,
              help="Two outputs to compare instead.")  # fmt: skip
@click.option("--most", default=MOST_SHOWN, show_default=True,
              help="Differences of one place that are printed.")  # fmt: skip
def main(
    folder: Path | None, only: tuple[str, ...], sides: tuple[Path, Path] | None, most: int
) -> None:
    """Write down what the tool says and computes, or compare two of these."""
    if sides:
        sys.exit(0 if compare(*sides, most) else 1)
    if folder is None:
        raise click.UsageError("name the folder to write to, or --compare A B")
    write(folder, iter(only or PARTS))


if __name__ == "__main__":
    main()
