"""A real S3 server (moto) on the loopback interface, behind a layer that makes it fail."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

KEYS = {
    "AWS_ACCESS_KEY_ID": "of-this-test",
    "AWS_SECRET_ACCESS_KEY": "of-this-test",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""Environment of who uses it."""

Fault = Callable[[str, str], str | None]
"""Takes a request's method and path: ``refuse`` (503), ``drop`` (the connection), ``hang`` or
nothing."""


class ObjectStore:
    """A server with one bucket: what it holds, and what was written to it.

    Attributes:
        fault: how each request fails; None for a server that works.
        requests: method and path of every request so far.
    """

    def __init__(self, bucket: str) -> None:
        self.bucket, self.address = bucket, ""
        self.fault: Fault | None = None
        self.requests: list[tuple[str, str]] = []
        self.ended = threading.Event()

    def uri(self, folder: str = "runs") -> str:
        return f"s3://{self.bucket}/{folder}?endpoint_override={self.address}&scheme=http&region=us-east-1"

    @property
    def objects(self) -> dict[str, bytes]:
        """All objects by ``bucket/key``."""
        keys = _backend().buckets[self.bucket].keys
        return {f"{self.bucket}/{name}": keys[name].value for name in keys}

    @property
    def written(self) -> list[str]:
        """The names of all objects that were ever written, in their order."""
        return [path.removeprefix("/") for method, path in self.requests if method == "PUT"]

    def put(self, name: str, content: bytes) -> None:
        _backend().put_object(self.bucket, name.removeprefix(f"{self.bucket}/"), content)

    def application(self, answer: Any) -> Any:
        """Return a WSGI application that fails as told, and else asks another one."""

        def answered(environ: dict[str, Any], start: Any) -> Any:
            method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
            self.requests.append((method, path))
            fault = self.fault(method, path) if self.fault is not None else None
            if fault == "hang":
                self.ended.wait(600)
            if fault in ("drop", "hang"):
                environ["werkzeug.socket"].close()
                raise ConnectionAbortedError
            if fault == "refuse":
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                start("503 Slow Down", [("Connection", "close")])
                return [b"<Error><Code>SlowDown</Code><Message>Slow down</Message></Error>"]
            return answer(environ, start)

        return answered


@contextmanager
def object_store(bucket: str) -> Iterator[ObjectStore]:
    """Serve a store that has one empty bucket while the block runs."""
    server = pytest.importorskip("moto.server")
    serving = pytest.importorskip("werkzeug.serving")

    class Quiet(serving.WSGIRequestHandler):  # type: ignore[misc]
        protocol_version = "HTTP/1.1"

        def log(self, *_arguments: object) -> None:
            pass

    _backend().reset()
    _backend().create_bucket(bucket, "us-east-1")
    store = ObjectStore(bucket)
    application = store.application(server.DomainDispatcherApplication(server.create_backend_app))
    http = serving.make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    http.daemon_threads, http.block_on_close = True, False
    store.address = f"127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield store
    finally:
        store.ended.set()
        http.shutdown()
        thread.join()
        http.server_close()


def _backend() -> Any:
    from moto.s3.models import s3_backends

    return s3_backends["123456789012"]["aws"]
