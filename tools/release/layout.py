"""A built image, read from its OCI layout: its digest, its configuration, and files of its layers."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from tools.release.errors import ReleaseRefused

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"


@dataclass(frozen=True)
class Layout:
    """A folder with one image, as the OCI image layout specification has it."""

    folder: Path
    digest: str
    """Of the manifest: what a registry names the image by."""
    config: Mapping[str, Any]
    layers: tuple[str, ...]
    """Digests, from the base up."""

    @classmethod
    def opened(cls, folder: Path) -> Layout:
        """Open a layout. Raises ReleaseRefused where a blob is missing or differs from its digest."""
        index = folder / "index.json"
        if not index.is_file():
            raise ReleaseRefused(f"{folder} is no OCI layout: it has no index.json.")
        manifests = json.loads(index.read_text())["manifests"]
        if len(manifests) != 1:
            raise ReleaseRefused(f"{folder} holds {len(manifests)} images. It would hold one.")
        digest = manifests[0]["digest"]
        manifest = json.loads(_blob(folder, digest).read_bytes())
        config = json.loads(_blob(folder, manifest["config"]["digest"]).read_bytes())
        return cls(folder, digest, config, tuple(layer["digest"] for layer in manifest["layers"]))

    def env(self, name: str) -> str:
        """Return a variable of the image's configuration, or the empty string."""
        given: dict[str, str] = dict(text.split("=", 1) for text in self.config.get("config", {}).get("Env") or ())
        return given.get(name, "")

    def files(self, wanted: Callable[[str], bool]) -> dict[str, bytes]:
        """Return path → content of the files whose path is wanted, as the topmost layer has them."""
        kept: dict[str, bytes] = {}
        for layer in self.layers:
            with tarfile.open(_blob(self.folder, layer)) as archive:
                _laid_over(kept, archive, wanted)
        return kept


def _laid_over(kept: dict[str, bytes], archive: tarfile.TarFile, wanted: Callable[[str], bool]) -> None:
    """Lay a layer over those below. What it removes is removed first, for it removes nothing of its own."""
    added: dict[str, bytes] = {}
    for member in archive:
        path = PurePosixPath(member.name.removeprefix("./"))
        if path.name == OPAQUE:
            _remove(kept, f"{path.parent}/")
        elif path.name.startswith(WHITEOUT):
            removed = str(path.with_name(path.name.removeprefix(WHITEOUT)))
            kept.pop(removed, None)
            _remove(kept, f"{removed}/")
        elif member.isfile() and wanted(str(path)):
            content = archive.extractfile(member)
            added[str(path)] = content.read() if content else b""
        elif not member.isdir():
            kept.pop(str(path), None)
    kept |= added


def _remove(kept: dict[str, bytes], prefix: str) -> None:
    for path in [path for path in kept if path.startswith(prefix)]:
        del kept[path]


def _blob(folder: Path, digest: str) -> Path:
    algorithm, _, value = digest.partition(":")
    path = folder / "blobs" / algorithm / value
    if algorithm != "sha256" or not path.is_file():
        raise ReleaseRefused(f"{folder} lacks the blob {digest}.")
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != value:
            raise ReleaseRefused(f"{path} is not what its name says.")
    return path
