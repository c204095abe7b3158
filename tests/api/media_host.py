"""A host of pictures by TLS, for tests of what a server fetches: it may misbehave in many ways.

`MediaHost.pages` has what each path answers: bytes, (status, headers, bytes), or a function that
gets the handler and answers itself."""

import os
import ssl
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from certificates import certificate


class MediaHost:
    """Listens at once; close() ends it. `seen`: the paths that were asked for, in order."""

    def __init__(self, directory):
        certificate(directory)
        host = self
        self.pages, self.seen, self.authority = {}, [], directory / "localhost.pem"
        self.ended = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):  # pylint: disable=invalid-name
                host.seen.append(self.path)
                page = host.pages.get(self.path, (404, {}, b"none"))
                try:
                    page(self) if callable(page) else answer(self, page)
                except (OSError, ssl.SSLError):
                    self.close_connection = True  # the client has gone

            def log_message(self, *arguments):  # pylint: disable=arguments-differ
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "localhost.pem", directory / "localhost.key")
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.handle_error = lambda *arguments: None  # a handshake that the client ends
        self.server.daemon_threads = True
        # A handshake is a thing of its own thread, not of the one that accepts.
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True,
                                                 do_handshake_on_connect=False)
        self.port = self.server.server_port
        self.entry = f"127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def url(self, path, host="127.0.0.1"):
        return f"https://{host}:{self.port}{path}"

    def close(self):
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()

    # what misbehaves

    def silent(self, handler):
        """Never answers."""
        self.ended.wait(60)
        handler.close_connection = True

    def slow(self, handler):
        """A byte now and then, of a header that never ends."""
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not self.ended.is_set():
            handler.wfile.write(b"a")
            time.sleep(0.2)

    def endless(self, handler):
        """A body without a length and without an end."""
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n")
        while not self.ended.is_set():
            handler.wfile.write(b"\x89PNG" * 16384)

    def headers(self, handler):
        """More and more headers."""
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not self.ended.is_set():
            handler.wfile.write(b"X-Some: " + b"a" * 1000 + b"\r\n")


def answer(handler, page):
    status, headers, body = page if isinstance(page, tuple) else (200, {}, page)
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    if "Content-Length" not in headers:
        handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def trusted(host):
    """Servers that are started within trust the host's certificate."""
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = str(host.authority)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SSL_CERT_FILE"]
        else:
            os.environ["SSL_CERT_FILE"] = before
