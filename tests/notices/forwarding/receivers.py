"""Receivers of audit records on loopback: syslog over TLS, and HTTP."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

from tests.controlplane.pki import Authority

READ, READ_AND_CUT, HANG, RESET, NO_END = "read", "read and cut", "hang", "reset", "no end"


class SyslogReceiver:
    """Behaves as `moods` has it, one for each connection, then reads all. `streams` is what it read to the end."""

    def __init__(self) -> None:
        authority = Authority()
        self.ca = authority.pem
        certificate, key = authority.server(["127.0.0.1"])
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "pem").write_text(certificate + key)
            self._context.load_cert_chain(Path(folder, "pem"))
        self.moods: list[str] = []
        self.streams: list[bytes] = []
        self.over = Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"tls://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._socket.accept()
            except OSError:
                return
            with suppress(OSError):
                self._read(plain, self.moods.pop(0) if self.moods else READ)

    def _read(self, plain: socket.socket, mood: str) -> None:
        plain.settimeout(20)
        secured = self._context.wrap_socket(plain, server_side=True)
        with secured:
            if mood == HANG:
                self.over.wait(20)
                return
            if mood == RESET:
                secured.recv(64)
                secured.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            stream = b""
            while piece := secured.recv(65536):
                stream += piece
            self.streams.append(stream)
            if mood != NO_END:
                with suppress(OSError):
                    secured.unwrap()

    def close(self) -> None:
        self.over.set()
        self._socket.close()


class HttpReceiver:
    """`answers` are what it does with its next requests, (status, headers, body), then 200 and {}."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.meanwhile: Callable[[], Any] = lambda: None
        mine = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                mine.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                mine.meanwhile()
                status, headers, answer = mine.answers.pop(0) if mine.answers else (200, {}, b"{}")
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1/logs"
        Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, body in self.got]

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
