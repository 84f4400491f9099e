"""Charts as archives, the same bytes every time: what a repository would serve, made without helm."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

CHARTS = Path(__file__).resolve().parent / "charts"
"""The demo's own; see its README."""


def pack(folder: Path) -> bytes:
    """Return a chart's folder as `<folder's name>.tgz`."""
    return packed(folder.name, files(folder))


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of a chart's files by their paths; links are no files."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def packed(name: str, content: Mapping[str, bytes]) -> bytes:
    """Pack files in order of their paths: no times, no owners."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(content, key=lambda path: path.split("/")):
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mode = len(content[path]), 0o644
            archive.addfile(entry, io.BytesIO(content[path]))
    return gzip.compress(plain.getvalue(), compresslevel=9, mtime=0)
