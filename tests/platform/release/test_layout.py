"""Reading of what an image holds, from its layers as a container would see them, against the lock files."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tools.release import packages
from tools.release.errors import ReleaseRefused
from tools.release.layout import Layout
from tools.release.packages import VENV, inventory

SITE = f"{VENV}lib/python3.13/site-packages"
STATUS = b"""Package: bash
Status: install ok installed
Architecture: amd64
Source: bash-source (5.2-2)
Version: 5.2-2+b1
Description: shell
 Package: not-one
 .

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""


def layer(*entries: tuple[str, bytes | None]) -> bytes:
    """Return an archive; a path without content is a folder where it ends in a slash, and else a link."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, content in entries:
            member = tarfile.TarInfo(path.rstrip("/"))
            member.size = len(content or b"")
            if content is None:
                member.type = tarfile.DIRTYPE if path.endswith("/") else tarfile.SYMTYPE
                member.linkname = "" if path.endswith("/") else "elsewhere"
            archive.addfile(member, io.BytesIO(content or b""))
    return out.getvalue()


def layout(folder: Path, *layers: bytes, env: tuple[str, ...] = ()) -> Layout:
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def kept(content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    config = kept(json.dumps({"created": "2026-01-01T00:00:00Z", "config": {"Env": list(env)}}).encode())
    manifest = kept(json.dumps({"config": config, "layers": [kept(content) for content in layers]}).encode())
    (folder / "index.json").write_text(json.dumps({"manifests": [manifest]}))
    return Layout.opened(folder)


def distribution(name: str, version: str) -> tuple[str, bytes]:
    text = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nLicense-Expression: MIT\n\nName: a trap\n"
    return f"{SITE}/{name}-{version}.dist-info/METADATA", text.encode()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    (root / "requirements").mkdir(parents=True)
    (root / "requirements/base.txt").write_text(
        "one-thing[extra]==1.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
        "two==2.0 ; sys_platform == 'win32' \\\n    --hash=sha256:cc\n"
    )
    entry = {"version": "1.2.3", "license": "MIT", "integrity": "sha512-qrs="}
    held = {"packages": {f"node_modules/{name}": entry for name in packages.SOURCES}}
    (root / "package-lock.json").write_text(json.dumps(held))
    return root


def test_what_a_later_layer_removes_is_not_in_the_image(tmp_path: Path) -> None:
    below = layer(("a/x", b"1"), ("a/y", b"1"), ("b/x", b"1"), ("c/d/x", b"1"), ("e", b"1"), ("f", b"1"))
    above = layer(
        ("./a/.wh.x", b""), ("b/new", b"2"), ("b/.wh..wh..opq", b""), (".wh.c", b""), ("e", None), ("f", b"2")
    )
    image = layout(tmp_path / "image", below, above)
    assert image.files(lambda _: True) == {"a/y": b"1", "b/new": b"2", "f": b"2"}


def test_packages_are_what_the_installers_recorded(tmp_path: Path, checkout: Path) -> None:
    content = layer(
        ("var/lib/dpkg/status", STATUS),
        ("usr/lib/os-release", b'ID=debian\nVERSION_ID="13"\n'),
        distribution("One_Thing", "1.0"),
        ("usr/lib/python3/dist-packages/pip-1.dist-info/METADATA", b"Name: pip\nVersion: 1\n\n"),
        ("opt/setpoint/app/static/vendor/icons.svg", b"<svg/>"),
    )
    held = inventory(layout(tmp_path / "image", content, env=("PYTHON_VERSION=3.13.14",)), checkout)
    assert {(package.kind, package.name, package.version) for package in held.packages} == {
        ("deb", "bash", "5.2-2+b1"), ("pypi", "one-thing", "1.0"), ("pypi", "pip", "1"),
        ("npm", "@tabler/icons-sprite", "1.2.3"), ("generic", "python", "3.13.14"),
    }  # fmt: skip
    by_name = {package.name: package for package in held.packages}
    assert by_name["one-thing"].hashes == ("sha256:aa", "sha256:bb")
    assert by_name["one-thing"].license == "MIT"
    assert by_name["pip"].hashes == (), "what the base brings is not what the lock accepted"
    assert by_name["bash"].source == "bash-source (5.2-2)"


@pytest.mark.parametrize(
    ("installed", "named"),
    [
        ([("one-thing", "1.1")], "one-thing 1.1"),
        ([("one-thing", "1.0"), ("stray", "3")], "stray 3"),
        ([("two", "2.0")], "one-thing 1.0 is missing"),
    ],
)
def test_an_image_that_differs_from_the_lock_gets_no_bill(
    tmp_path: Path, checkout: Path, installed: list[tuple[str, str]], named: str
) -> None:
    image = layout(tmp_path / "image", layer(*(distribution(*each) for each in installed)))
    with pytest.raises(ReleaseRefused, match=named):
        inventory(image, checkout)


def test_a_file_for_browsers_of_no_known_package_gets_no_bill(tmp_path: Path, checkout: Path) -> None:
    image = layout(tmp_path / "image", layer(("opt/setpoint/app/static/vendor/new.js", b"")))
    with pytest.raises(ReleaseRefused, match=r"new\.js"):
        inventory(image, checkout)


def test_a_changed_blob_is_refused(tmp_path: Path) -> None:
    image = layout(tmp_path / "image", layer(("a", b"1")))
    (image.folder / "blobs/sha256" / image.layers[0].partition(":")[2]).write_bytes(layer(("a", b"2")))
    with pytest.raises(ReleaseRefused, match="not what its name says"):
        image.files(lambda _: True)


def test_a_folder_without_an_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReleaseRefused, match="no OCI layout"):
        Layout.opened(tmp_path)
