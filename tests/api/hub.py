"""A hub of Hugging Face that serves one folder per repository, for huggingface_hub and for inferd.

What a download needs: the description of a revision, and files with their ETag and commit. As on
the real hub, files of LARGE kinds are LFS: their sum is a sha256, and the hub redirects to a second
server, the content network, which must never see a token. `Hub.faults` makes it misbehave."""

import functools
import hashlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

COMMIT = "5e1f" * 10
LARGE = (".safetensors", ".gguf", ".bin", ".pth", ".onnx", ".model")


class Request:
    """One request as a fault sees it: `place` is "api", "hub" or "cdn"."""

    def __init__(self, handler, place, name):
        self.handler, self.place, self.name = handler, place, name
        self.method, self.path = handler.command, handler.path
        self.range = handler.headers.get("Range")
        self.token = handler.headers.get("Authorization")

    def __repr__(self):
        return f"<{self.method} {self.place} {self.name} {self.range}>"


class Hub:
    """`repositories`: {"org/name": folder}. Starts at once; close() ends it.

    blobs: whether the description tells sums and sizes, as the hub does for ?blobs=true.
    revisions: {branch or tag: commit}; the commits are revisions too.
    faults: functions that get each Request first. One that returns True has answered.
    siblings: names that the description tells besides the files.
    seen: all requests, in order."""

    def __init__(self, repositories, blobs=True, revisions=None):
        self.repositories = {name: Path(folder) for name, folder in repositories.items()}
        self.blobs, self.revisions = blobs, revisions or {"main": COMMIT}
        self.faults, self.siblings, self.seen = [], [], []
        self.sizes = {}  # what the description tells instead of the truth
        self.cdn = self.listen("cdn")
        self.server = self.listen("hub")
        self.cdn_url = f"http://localhost:{self.cdn.server_port}"
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def listen(self, place):
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):  # pylint: disable=invalid-name
                try:
                    hub.answer(self, place)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # the client was killed

            do_HEAD = do_GET

            def log_message(self, *arguments):  # pylint: disable=arguments-differ
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    def close(self):
        for server in (self.server, self.cdn):
            server.shutdown()
            server.server_close()

    def answer(self, handler, place):
        parts = unquote(urlsplit(handler.path).path).strip("/").split("/")
        if place == "cdn":
            name, repository = "/".join(parts[2:]), "/".join(parts[:2])
        elif parts[:2] == ["api", "models"]:
            place, name, repository = "api", "/".join(parts[4:]), "/".join(parts[2:4])
        else:
            name, repository = "/".join(parts[4:]), "/".join(parts[:2])
        request = Request(handler, place, name)
        self.seen.append(request)
        if any(fault(request) for fault in list(self.faults)):
            return
        if place == "cdn":
            self.send_file(request, self.repositories[repository] / name)
        elif place == "api":
            self.describe(request, repository, parts[4:])
        elif len(parts) > 4 and parts[2] == "resolve":
            self.resolve(request, repository, parts[3])
        else:
            self.send(handler, 404, b"{}")

    def files(self, name):
        folder = self.repositories[name]
        return [(p, str(p.relative_to(folder))) for p in sorted(folder.rglob("*")) if p.is_file()]

    def commit_of(self, revision):
        known = {**self.revisions, **{commit: commit for commit in self.revisions.values()}}
        return known.get(revision)

    def describe(self, request, name, rest):
        handler = request.handler
        commit = self.commit_of("/".join(rest[1:]) if len(rest) > 1 else "main")
        if name not in self.repositories:
            self.send(handler, 404, b'{"error": "Repository not found"}',
                      {"X-Error-Code": "RepoNotFound"})
        elif commit is None:
            self.send(handler, 404, b'{"error": "Invalid rev id"}',
                      {"X-Error-Code": "RevisionNotFound"})
        elif rest[:1] == ["tree"]:
            answer = [{"type": "file", "path": shown, "size": p.stat().st_size, "oid": etag(p)}
                      for p, shown in self.files(name)]
            self.send(handler, 200, json.dumps(answer).encode())
        else:
            answer = {"id": name, "modelId": name, "sha": commit, "private": False, "tags": [],
                      "downloads": 0, "likes": 0,
                      "siblings": [self.sibling(p, shown) for p, shown in self.files(name)]}
            answer["siblings"] += [{"rfilename": extra} for extra in self.siblings]
            self.send(handler, 200, json.dumps(answer).encode())

    def sibling(self, path, shown):
        told = {"rfilename": shown}
        if self.blobs:
            size = self.sizes.get(shown, path.stat().st_size)
            told.update(size=size, blobId=git_sha1(b"pointer") if is_large(path) else etag(path))
            if is_large(path):
                told["lfs"] = {"sha256": etag(path), "size": size, "pointerSize": 135}
        return told

    def resolve(self, request, name, revision):
        path, commit = self.repositories[name] / request.name, self.commit_of(revision)
        if commit is None or not path.is_file():
            code = "EntryNotFound" if commit else "RevisionNotFound"
            self.send(request.handler, 404, b"", {"X-Error-Code": code})
        elif is_large(path):
            self.send(request.handler, 302, b"", {
                "Location": f"{self.cdn_url}/{name}/{quote(request.name)}?signature=secret",
                "X-Linked-Etag": f'"{etag(path)}"', "X-Linked-Size": str(path.stat().st_size),
                "X-Repo-Commit": commit})
        else:
            self.send_file(request, path, {"X-Repo-Commit": commit})

    def send_file(self, request, path, headers=None):
        body, status = path.read_bytes(), 200
        headers = {"ETag": f'"{etag(path)}"', "Accept-Ranges": "bytes", **(headers or {})}
        if request.range:
            first, last = re.fullmatch(r"bytes=(\d+)-(\d*)", request.range).groups()
            first, last = int(first), min(int(last or len(body) - 1), len(body) - 1)
            if first >= len(body):
                self.send(request.handler, 416, b"", {"Content-Range": f"bytes */{len(body)}"})
                return
            headers["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
            body, status = body[first:last + 1], 206
        self.send(request.handler, status, body, headers)

    @staticmethod
    def send(handler, status, body, headers=None, cut=None, pause_s=0.0, chunk=1 << 16):
        """cut: bytes of the body after which the connection is closed."""
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        for key, value in (headers or {}).items():
            handler.send_header(key, value)
        handler.end_headers()
        if handler.command == "HEAD":
            return
        part = body if cut is None else body[:cut]
        for at in range(0, len(part), chunk):
            handler.wfile.write(part[at:at + chunk])
            time.sleep(pause_s)
        if cut is not None:
            handler.wfile.flush()
            handler.close_connection = True


def is_large(path):
    return Path(path).name.endswith(LARGE)


def git_sha1(body):
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


@functools.lru_cache(maxsize=None)
def etag(path):
    """The sum of a file, which does not change while a test runs."""
    body = Path(path).read_bytes()
    return hashlib.sha256(body).hexdigest() if is_large(path) else git_sha1(body)
