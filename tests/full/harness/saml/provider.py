"""Start of pysaml2's identity provider, which knows the people of a file."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from accounts.providers import GroupRole, SamlProvider
from tests.accounts.signon.saml import idp
from tests.ports import free_port

SCRIPT = Path(__file__).with_name("pysaml2_idp.py")
MACE = "urn:mace:dir:attribute-def:"
XMLSEC1 = shutil.which("xmlsec1")
needs_xmlsec1 = pytest.mark.skipif(XMLSEC1 is None, reason="no xmlsec1: apt-get install xmlsec1")
"""A skip, which CI=true counts as failed (tests/conftest.py)."""


class RealProvider:
    """`people` maps a login to attributes; `save` makes the provider see a change of it."""

    def __init__(self, folder: Path) -> None:
        self.people: dict[str, dict[str, list[str]]] = {}
        self.port = free_port()
        self.entity = f"http://127.0.0.1:{self.port}/metadata"
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None

    def save(self) -> None:
        (self._folder / "people.json").write_text(json.dumps(self.people))

    def start(self, metadata: str, *, signs_response: bool = False, signs_sha1: bool = False) -> None:
        """`metadata`: the address of the service's own, which is read as an administrator would upload it.

        `signs_sha1`: as pysaml2 does unless it is set up otherwise.
        """
        self.save()
        (self._folder / "sp.xml").write_bytes(requests.get(metadata, timeout=30).content)
        key = idp.KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self._folder / "key.pem").write_bytes(key)
        (self._folder / "cert.pem").write_text(idp.CERTIFICATE)
        files = {"people": "people.json", "metadata": "sp.xml", "key": "key.pem", "certificate": "cert.pem"}
        given: dict[str, Any] = {name: str(self._folder / file) for name, file in files.items()}
        given |= {"port": self.port, "xmlsec1": XMLSEC1, "signs_response": signs_response, "signs_sha1": signs_sha1}
        with (self._folder / "idp.log").open("w") as log:
            command = [sys.executable, "-W", "ignore", str(SCRIPT), json.dumps(given)]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout
        lines = iter(self._process.stdout.readline, "")
        assert any(line.strip() == "ready" for line in lines), (self._folder / "idp.log").read_text()

    def stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout
            self._process.stdout.close()
            self._process = None

    def settings(self, *mapping: GroupRole) -> SamlProvider:
        given = {
            "sso_url": f"http://127.0.0.1:{self.port}/sso",
            "certificates": (idp.CERTIFICATE,),
            "email_claim": f"{MACE}mail",
            "first_name_attribute": f"{MACE}givenName",
        }
        return SamlProvider("corp", "Example Corp", self.entity, mapping, **given)


@contextmanager
def real_provider(folder: Path) -> Iterator[RealProvider]:
    provider = RealProvider(folder)
    try:
        yield provider
    finally:
        provider.stop()
