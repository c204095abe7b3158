"""A hub of Hugging Face that serves one folder per repository, for huggingface_hub and for inferd.

Only what a download needs: the tree of a revision, and files with their ETag and commit."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "5e1f" * 10


class Hub:
    """`repositories`: {"org/name": folder}. Starts at once; close() ends it."""

    def __init__(self, repositories):
        self.repositories = {name: Path(folder) for name, folder in repositories.items()}
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):  # pylint: disable=invalid-name
                hub.answer(self)

            do_HEAD = do_GET

            def log_message(self, *arguments):  # pylint: disable=arguments-differ
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def answer(self, handler):
        parts = unquote(urlsplit(handler.path).path).strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self.describe(handler, "/".join(parts[2:4]), parts[4:])
        elif len(parts) > 4 and parts[2] == "resolve":
            self.send_file(handler, "/".join(parts[:2]), "/".join(parts[4:]))
        else:
            self.send(handler, 404, b"{}")

    def files(self, name):
        folder = self.repositories[name]
        return sorted(p for p in folder.rglob("*") if p.is_file())

    def describe(self, handler, name, rest):
        if name not in self.repositories:
            self.send(handler, 404, b'{"error": "Repository not found"}',
                      {"X-Error-Code": "RepoNotFound"})
            return
        folder = self.repositories[name]
        names = [(p, str(p.relative_to(folder))) for p in self.files(name)]
        if rest[:1] == ["tree"]:
            answer = [{"type": "file", "path": shown, "size": p.stat().st_size,
                       "oid": etag(p.read_bytes())} for p, shown in names]
        else:
            answer = {"id": name, "modelId": name, "sha": COMMIT, "private": False, "tags": [],
                      "downloads": 0, "likes": 0,
                      "siblings": [{"rfilename": shown} for _, shown in names]}
        self.send(handler, 200, json.dumps(answer).encode())

    def send_file(self, handler, name, shown):
        path = self.repositories[name] / shown
        if not path.is_file():
            self.send(handler, 404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        body = path.read_bytes()
        self.send(handler, 200, body, {"ETag": f'"{etag(body)}"', "X-Repo-Commit": COMMIT,
                                       "Accept-Ranges": "bytes"})

    @staticmethod
    def send(handler, status, body, headers=None):
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        for key, value in (headers or {}).items():
            handler.send_header(key, value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)


def etag(body):
    return hashlib.sha256(body).hexdigest()
