"""A page that shows a running plan, served to this machine alone while it runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from types import TracebackType
from typing import Any, Self

from loadmaster.errors import InputError

__all__ = ["LivePage", "live_html"]

HOST = "127.0.0.1"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"


def live_html(title: str, subtitle: str) -> str:
    """The page itself; what it shows it asks for."""
    page = files("loadmaster.report").joinpath("page")
    content = {
        "TITLE": escape(title),
        "SUBTITLE": escape(subtitle),
        "STYLE": page.joinpath("page.css").read_text("utf-8"),
        "SCRIPT": page.joinpath("live.js").read_text("utf-8"),
    }
    parts = page.joinpath("live.html").read_text("utf-8").split("%%")
    return "".join(content[part] if i % 2 else part for i, part in enumerate(parts))


class LivePage:
    """Serves the page and, as ``state.json``, what ``state`` gives. A context manager: leaving it ends the server.

    Only this machine can reach it, and only under its own address: a page from elsewhere whose name was made to point
    here gets nothing.

    Raises
    ------
    InputError : the port cannot be used.
    """

    def __init__(self, port: int = 0) -> None:
        if not 0 <= port <= 65535:
            raise InputError(f"the port must be a number from 0 to 65535, not {port}", option="--port")
        self._page = b""
        self._state: Callable[[], Mapping[str, Any]] = dict
        try:
            self._server = ThreadingHTTPServer((HOST, port), self._handler())
        except OSError as error:
            why = error.strerror or str(error)
            raise InputError(
                f"port {port} cannot be used ({why}): choose another, or 0 for any", option="--port"
            ) from None
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self.url = f"http://{HOST}:{self.port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    def start(self, page: str, state: Callable[[], Mapping[str, Any]]) -> None:
        """Begin to answer."""
        self._page, self._state = page.encode(), state
        self._thread.start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 30

            def do_GET(self) -> None:
                host = (self.headers.get("Host") or "").lower()
                if host not in (f"{HOST}:{outer.port}", f"localhost:{outer.port}"):
                    self.send_error(403, "only this machine is answered")
                elif self.path == "/":
                    self._send("text/html; charset=utf-8", outer._page)
                elif self.path == "/state.json":
                    self._send("application/json", json.dumps(outer._state(), allow_nan=False).encode())
                else:
                    self.send_error(404)

            def _send(self, kind: str, content: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Cache-Control", "no-store")
                self.send_header("Content-Security-Policy", POLICY)
                self.send_header("X-Content-Type-Options", "nosniff")
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing: the terminal is for the run."""

        return Handler

    def close(self) -> None:
        """End the server."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
