"""Processes that are killed before their n-th write, one after another, cheaply.

``python writes.py ROOT`` imports everything once. For each line of JSON on its input it forks a
child that runs one ``hsweep`` command, and answers with a line once the child is gone. A child that
is told to kills itself (SIGKILL) just before its n-th write below ROOT. Writes are the changes that
others can see: a statement that commits, a file opened for writing, a rename, a removal, a folder.
A torn write leaves half of what was to be written first.

What a kill between two of these would leave, a kill before the second leaves as well, so the tries
cover every instant at which the process writes from Python.
"""

import gc
import importlib
import json
import os
import re
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_CHANGES: Final = ("INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "DROP", "REPLACE", "COMMIT")
_FILE_EVENTS: Final = ("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
_MADE: Final = re.compile(r"CREATE .*IF NOT EXISTS (\w+)")
_PRELOADED: Final = (
    *("mlflow.tracking.client", "mlflow.store.tracking.sqlalchemy_store", "pandas"),
    *("pyarrow.fs", "pyarrow.parquet", "torch._dynamo", "analysis.ask", "analysis.report.build"),
    *(
        "hsweep.cli",
        "hsweep.commands.conclusion",
        "hsweep.running.change",
        "hsweep.running.run",
        "hsweep.training.loop",
    ),
    *("hsweep.tracking.mlflow_runs", "hsweep.tracking.tracker", "hsweep.training.train"),
)
_HALF: Final = b'{"half of it'

Tear = Callable[[], object]


class Writes:
    """Counts the writes of this process, and ends it before one of them.

    Args:
        root: writes elsewhere do not count.
        dies_at: number of the write before which the process dies, from 1; None for never.
        torn: leave half of that write.
    """

    def __init__(self, root: Path, dies_at: int | None, *, torn: bool) -> None:
        self._root = f"{root}{os.sep}"
        self._dies_at = dies_at
        self._torn = torn
        self._is_dying = False
        self.made: list[dict[str, Any]] = []

    def before(self, what: str, path: object, tear: Tear | None = None) -> None:
        """Note a write that is about to be made, or die instead of making it."""
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        if self._is_dying or not str(name).startswith(self._root):
            return
        self.made.append({"what": what, "name": Path(str(name)).name, "tears": tear is not None})
        if len(self.made) == self._dies_at:
            self._is_dying = True
            if self._torn and tear is not None:
                tear()
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        """Begin to count."""
        sys.addaudithook(self._on_event)
        self._watch_sqlite()
        self._watch_pyarrow()
        self._watch_descriptors()

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            # A descriptor has been opened before.
            if flags & (os.O_WRONLY | os.O_RDWR) and not isinstance(path, int):
                # A temporary file without a name is opened as its folder.
                is_new = not Path(path).is_dir() and (
                    bool(flags & os.O_TRUNC) or not Path(path).exists()
                )
                self.before("open", path, (lambda: _leave_half(path)) if is_new else None)
        elif event in _FILE_EVENTS and not (event == "os.mkdir" and Path(arguments[0]).exists()):
            self.before(event, arguments[0])

    def _watch_sqlite(self) -> None:
        writes = self

        class Connection(sqlite3.Connection):
            file = ""

            def _note(self, sql: str) -> None:
                verb = sql.split(None, 1)[0].upper() if sql.strip() else ""
                # Inside a transaction only its end changes what others see.
                if verb not in _CHANGES or (self.in_transaction and verb != "COMMIT"):
                    return
                made = _MADE.search(sql)
                if made is None or not self._has(made[1]):
                    writes.before(f"sql {verb}", self.file)

            def _has(self, name: str) -> bool:
                found = super().execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,))
                return found.fetchone() is not None

            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                self._note(sql)
                return super().execute(sql, *values)

            def executemany(self, sql: str, *values: Any) -> sqlite3.Cursor:
                self._note(sql)
                return super().executemany(sql, *values)

            def executescript(self, script: str) -> sqlite3.Cursor:
                cursor, statement = self.cursor(), ""
                for part in script.split(";"):
                    statement += f"{part};"
                    if sqlite3.complete_statement(statement):
                        cursor, statement = self.execute(statement), ""
                return cursor

            def commit(self) -> None:
                if self.in_transaction:
                    writes.before("sql COMMIT", self.file)
                super().commit()

        original = sqlite3.connect

        def connect(database: Any, *arguments: Any, **named: Any) -> sqlite3.Connection:
            connection = original(database, *arguments, **{**named, "factory": Connection})
            assert isinstance(connection, Connection)
            for _, name, file in sqlite3.Connection.execute(connection, "PRAGMA database_list"):
                if name == "main":
                    connection.file = file
            return connection

        sqlite3.connect = sqlite3.dbapi2.connect = connect  # type: ignore[attr-defined]

    def _watch_descriptors(self) -> None:
        write = os.write

        def counted(file: int, content: bytes) -> int:
            path = Path(f"/proc/self/fd/{file}").readlink()
            self.before("write", path, lambda: write(file, content[: len(content) // 2]))
            return write(file, content)

        os.write = counted

    def _watch_pyarrow(self) -> None:
        """Count what pyarrow writes, which Python does not see: checkpoints and tables."""
        import pyarrow.parquet

        from hsweep.training import storage

        find, write = storage.file_system, pyarrow.parquet.write_table

        def file_system(root: str) -> tuple[Any, str]:
            files, path = find(root)
            return _Files(files, self), path

        def counted_write(table: Any, path: Path) -> None:
            self.before("table", path, lambda: _leave_half(path))
            write(table, path)

        _replace(find, file_system)
        pyarrow.parquet.write_table = counted_write


class _Files:
    """A pyarrow file system whose changes are counted."""

    def __init__(self, files: Any, writes: Writes) -> None:
        self._files = files
        self._writes = writes

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._files, name)
        if name not in ("create_dir", "move", "delete_file", "delete_dir"):
            return method

        def counted(path: str, *arguments: Any, **named: Any) -> Any:
            self._writes.before(name, path)
            return method(path, *arguments, **named)

        return counted

    def open_output_stream(self, path: str) -> "_Stream":
        self._writes.before("open", path)
        return _Stream(self._files.open_output_stream(path), path, self._writes)


class _Stream:
    def __init__(self, stream: Any, path: str, writes: Writes) -> None:
        self._stream, self._path, self._writes = stream, path, writes

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *exception: object) -> None:
        self._stream.close()

    def write(self, content: bytes) -> None:
        def tear() -> None:
            self._stream.write(content[: len(content) // 2])
            self._stream.close()

        self._writes.before("write", self._path, tear)
        self._stream.write(content)


def _leave_half(path: Any) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(file, _HALF)
    os.close(file)


class _Untracked:
    """Stands for the tracker: it works in a thread of its own, whose writes come in any order.

    What a kill does to its deliveries is tried with ``sync``, which delivers in one thread.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        from hsweep.tracking.tracker import TrackingSummary

        return lambda *arguments, **named: TrackingSummary(delivered=0, pending=0)


def _prepare() -> None:
    """Import what a command needs, but run nothing that starts a thread."""
    for name in _PRELOADED:
        importlib.import_module(name)
    import torch

    from hsweep.design.recipe import Recipe
    from hsweep.planning.code import training_code
    from hsweep.training.optimizers import build_optimizer

    training_code()
    build_optimizer(torch.nn.Linear(1, 1), Recipe())
    _look_round_once()
    # A child that does not touch what it has inherited need not have its own copy of it.
    gc.collect()
    gc.freeze()


def _look_round_once() -> None:
    """Ask once for the commit, the packages and the machine, which every command would ask for."""
    from hsweep.record import provenance

    found = provenance.collect(command=["hsweep"], sweep_file=None)
    hardware = provenance.hardware()
    _replace(provenance.collect, lambda **what: dict(found))
    _replace(provenance.hardware, lambda: dict(hardware))


def _replace(original: object, stand_in: object) -> None:
    """Put something in the place of an object, under every name that the tool has for it."""
    found = [
        (module, name)
        for module in list(sys.modules.values())
        if module.__name__.split(".")[0] == "hsweep"
        for name, value in list(vars(module).items())
        if value is original
    ]
    assert found, original
    for module, name in found:
        setattr(module, name, stand_in)


def _child(root: Path, request: dict[str, Any]) -> int:
    import hsweep.commands.conclusion
    from hsweep.cli import main
    from hsweep.tracking.tracker import Tracker

    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if not request["tracks"]:
        _replace(Tracker, _Untracked)
    if not request["concludes"]:
        conclusion = hsweep.commands.conclusion.Conclusion
        conclusion.answer = lambda self, study, outcome, count: None  # type: ignore[method-assign]
        conclusion.write = lambda self, study: []  # type: ignore[method-assign]
    arguments = [str(argument) for argument in request["arguments"]]
    sys.argv = ["hsweep", *arguments]
    writes = Writes(root, request["dies_at"], torn=request["torn"])
    writes.watch()
    try:
        main(arguments, prog_name="hsweep")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 70
    sys.stdout.flush()
    sys.stderr.flush()
    Path(request["counted"]).write_text(json.dumps(writes.made))
    return code


def _say(answer: object) -> None:
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()


def serve(root: Path) -> None:
    """Answer requests until there are no more."""
    _prepare()
    _say("ready")
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 71
            try:
                code = _child(root, request)
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        _say(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
