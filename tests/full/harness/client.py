"""Setpoint's REST API as a person's program uses it: a personal token, JSON, If-Match, nothing else."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.cookies import SimpleCookie
from pathlib import Path
from threading import Barrier
from typing import Any
from urllib.parse import urlencode

import urllib3

ALL_SCOPES = ("read", "plan", "apply", "approve", "admin")
WAIT_SECONDS = 90.0


class Problem(Exception):
    """A refusal: the problem document, whole."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(f"{status}: {problem.get('detail') or problem.get('title')} {problem.get('fields') or ''}")
        self.status = status
        self.problem = problem


class Person:
    """A client of the REST API with a personal token."""

    def __init__(self, url: str, email: str, token: str = "") -> None:
        self.url = url
        self.email = email
        self.token = token
        self._cookies: dict[str, str] = {}
        self._pool = urllib3.PoolManager(retries=False, timeout=30.0, maxsize=4)

    def set_password(self, link: str, password: str, code: str = "") -> None:
        """Set the password behind a single-use link, as its owner does in a browser."""
        page = self._send("GET", link, redirect=False)
        match = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.data.decode())
        assert match, page.data[:500]
        form = {"password": password, "again": password, "code": code, "csrfmiddlewaretoken": match[1]}
        headers = {"Cookie": _header(_cookies(page)), "Content-Type": "application/x-www-form-urlencoded"}
        answer = self._send("POST", link, body=urlencode(form), headers=headers, redirect=False)
        assert answer.status == 302, f"{self.email} could not set a password: {answer.status}"

    def log_in(self, password: str, scopes: tuple[str, ...]) -> None:
        """Log in as a browser does, then make a personal token over REST within that session."""
        page = self._send("GET", f"{self.url}/login/", redirect=False)
        cookies = _cookies(page)
        match = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.data.decode())
        assert match, page.data[:500]
        form = {"email": self.email, "password": password, "csrfmiddlewaretoken": match[1]}
        headers = {"Cookie": _header(cookies), "Content-Type": "application/x-www-form-urlencoded"}
        answer = self._send("POST", f"{self.url}/login/", body=urlencode(form), headers=headers, redirect=False)
        assert answer.status == 302, f"{self.email} could not log in: {answer.status}"
        self._cookies = cookies = cookies | _cookies(answer)
        answer = self._send(
            "POST",
            f"{self.url}/api/v1/tokens",
            body=json.dumps({"name": "tests", "scopes": list(scopes), "days": 1}),
            headers={
                "Cookie": _header(cookies),
                "Content-Type": "application/json",
                "X-CSRFToken": cookies["csrftoken"],
            },
        )
        assert answer.status == 201, answer.data
        self.token = json.loads(answer.data)["token"]

    def page(self, path: str) -> str:
        """Return a page's HTML, as the session that `log_in` opened sees it."""
        answer = self._send("GET", f"{self.url}/{path}", headers={"Cookie": _header(self._cookies)}, redirect=False)
        assert answer.status == 200, f"{path}: {answer.status}"
        return str(answer.data.decode())

    def _send(self, method: str, url: str, *, headers: Mapping[str, str] | None = None, **options: Any) -> Any:
        """Send a request on a connection of its own: one that is kept may be closed by the server at any moment."""
        return self._pool.request(method, url, headers={**(headers or {}), "Connection": "close"}, **options)

    # ── verbs ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def get(self, path: str, **query: Any) -> Any:
        return self.ask("GET", path + (f"?{urlencode(query)}" if query else ""))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self.ask("POST", path, body or {})

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a PATCH with the current version as If-Match."""
        status, headers, _ = self.raw("GET", path)
        assert status == 200
        return self.ask("PATCH", path, body, {"If-Match": headers["ETag"]})

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """The answer's JSON. Raises Problem; never accepts a 500."""
        status, _, data = self.raw(method, path, body, headers)
        if status >= 400:
            raise Problem(status, data if isinstance(data, dict) else {"detail": str(data)[:500]})
        return data

    def raw(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, Any]:
        answer = self._send(
            method,
            f"{self.url}/api/v1/{path}",
            body=None if body is None else json.dumps(body),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json", **(headers or {})},
        )
        try:
            data = json.loads(answer.data) if answer.data else None
        except ValueError:
            data = answer.data.decode(errors="replace")
        return answer.status, answer.headers, data

    def upload(self, path: str, **files: Path) -> Any:
        """Send files as a form. Raises Problem."""
        fields = {name: (file.name, file.read_bytes()) for name, file in files.items()}
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = self._send("POST", f"{self.url}/api/v1/{path}", fields=fields, headers=headers)
        data = json.loads(answer.data)
        if answer.status >= 400:
            raise Problem(answer.status, data)
        return data

    def every(self, path: str, **query: Any) -> list[dict[str, Any]]:
        """All results of a list, page by page."""
        out: list[dict[str, Any]] = []
        while True:
            page = self.get(path, limit=100, offset=len(out), **query)
            out += page["results"]
            if len(page["results"]) < 100:
                return out


def eventually(
    what: Callable[[], Any], says: Callable[[], Any] = lambda: "", *, seconds: float = WAIT_SECONDS, pause: float = 0.3
) -> Any:
    """The first true answer of `what`. Fails with `says` when time is up."""
    deadline = time.monotonic() + seconds
    while True:
        if result := what():
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not so after {seconds:.0f} s: {says()}")
        time.sleep(pause)


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Run all calls at the same moment. Returns each one's answer, or the Problem it met."""
    together = Barrier(len(calls))

    def call_at_barrier(call: Callable[[], Any]) -> Any:
        together.wait(10)
        try:
            return call()
        except Problem as problem:
            return problem

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(call_at_barrier, calls))


def _cookies(answer: Any) -> dict[str, str]:
    jar: SimpleCookie = SimpleCookie()
    for line in answer.headers.getlist("Set-Cookie"):
        jar.load(line)
    return {name: morsel.value for name, morsel in jar.items()}


def _header(cookies: Mapping[str, str]) -> str:
    return "; ".join(f"{name}={value}" for name, value in cookies.items())
