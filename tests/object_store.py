"""An object store on the loopback interface: as much of S3 as pyarrow asks for.

Objects lie in a dictionary by ``bucket/key``; a key that ends in a slash stands for a folder.
"""

import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class ObjectStore:
    """What a server holds, and everything that was ever written to it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.objects: dict[str, bytes] = {}
        self.written: list[str] = []

    def put(self, name: str, content: bytes) -> None:
        self.objects[name] = content
        self.written.append(name)


@contextmanager
def object_store(bucket: str) -> Iterator[ObjectStore]:
    """Serve a store that has one bucket while the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    store = ObjectStore(f"127.0.0.1:{server.server_port}")
    store.objects[f"{bucket}/"] = b""
    _Handler.store = store
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: ObjectStore

    def _name(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/")

    def _query(self) -> dict[str, str]:
        found = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: values[0] for name, values in found.items()}

    def _answer(self, code: int = 200, text: bytes = b"", size: int | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(text) if size is None else size))
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(text)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = _unchunked(self.rfile)
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        is_signed = "aws-chunked" in self.headers.get("Content-Encoding", "")
        return _unchunked(io.BytesIO(body)) if is_signed else body

    def do_HEAD(self) -> None:
        name = self._name()
        held = self.store.objects
        if name in held or (f"{name}/" in held and "/" not in name):
            self._answer(size=len(held.get(name, b"")))
        else:
            self._answer(404)

    def do_GET(self) -> None:
        query = self._query()
        if "list-type" in query:
            self._list(self._name().rstrip("/"), query)
        elif self._name() in self.store.objects:
            self._answer(text=self.store.objects[self._name()])
        else:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        keys, folders = [], set()
        for name in sorted(self.store.objects):
            key = name.removeprefix(f"{bucket}/")
            if not key or not name.startswith(f"{bucket}/{prefix}"):
                continue
            below, mark, _ = key[len(prefix) :].partition(delimiter or "\0")
            if mark:
                folders.add(f"{prefix}{below}{mark}")
            else:
                keys.append((key, len(self.store.objects[name])))
        listed = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size>"
            "<LastModified>2025-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, size in keys
        ) + "".join(
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        )
        self._answer(
            text=f"<ListBucketResult><Name>{bucket}</Name><KeyCount>{len(keys) + len(folders)}"
            f"</KeyCount><IsTruncated>false</IsTruncated>{listed}</ListBucketResult>".encode()
        )

    def do_PUT(self) -> None:
        body, query = self._body(), self._query()
        source = self.headers.get("x-amz-copy-source")
        if "partNumber" in query:
            self.store.objects[f"{self._name()}?{query['partNumber']:>05}"] = body
            self._answer()
        elif source is not None:
            self.store.put(self._name(), self.store.objects[unquote(source).removeprefix("/")])
            self._answer(text=b"<CopyObjectResult><ETag>x</ETag></CopyObjectResult>")
        else:
            self.store.put(self._name(), body)
            self._answer()

    def do_POST(self) -> None:
        body, query = self._body(), self._query()
        held, name = self.store.objects, self._name()
        if "uploads" in query:
            self._answer(
                text=b"<InitiateMultipartUploadResult><UploadId>u</UploadId>"
                b"</InitiateMultipartUploadResult>"
            )
        elif "uploadId" in query:
            parts = sorted(part for part in held if part.startswith(f"{name}?"))
            self.store.put(name, b"".join(held.pop(part) for part in parts))
            self._answer(text=b"<CompleteMultipartUploadResult/>")
        else:  # delete several
            for key in re.findall(rb"<Key>(.*?)</Key>", body):
                held.pop(f"{name.rstrip('/')}/{key.decode()}", None)
            self._answer(text=b"<DeleteResult/>")

    def do_DELETE(self) -> None:
        self.store.objects.pop(self._name(), None)
        self._answer(204)

    def log_message(self, *_arguments: object) -> None:
        pass


def _unchunked(stream: IO[bytes]) -> bytes:
    """Read chunks, each behind its size, up to an empty one and the lines that follow it."""
    content = b""
    while size := int(stream.readline().partition(b";")[0], 16):
        content += stream.read(size)
        stream.readline()
    while stream.readline().strip():
        pass
    return content
