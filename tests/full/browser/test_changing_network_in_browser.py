"""The browser of the tests while another test beside it makes and removes networks of pods."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.controlplane.pod_host import PodHost
from tests.full.harness.browser import launched, needs_browser

pytestmark = needs_browser
PAGE = b"<!doctype html><title>Here</title>"


class _Slow(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        time.sleep(0.05)  # a request that is under way is one that Chromium would end
        self.send_response(200)
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_words: object) -> None:
        pass


def test_a_page_loads_while_the_machine_s_network_changes() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Slow)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    loaded = threading.Event()

    def change() -> None:
        while not loaded.is_set():
            PodHost().close()

    try:
        with launched() as browser, ThreadPoolExecutor(1) as pool:
            page = browser.new_page()
            page.goto(f"http://localhost:{server.server_port}/")
            changing = pool.submit(change)
            try:
                for _ in range(20):
                    page.reload()
                    assert page.title() == "Here"
            finally:
                loaded.set()
            changing.result()
    finally:
        server.shutdown()
        server.server_close()
