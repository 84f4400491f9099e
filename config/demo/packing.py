"""Charts as archives, the same bytes every time: what a repository would serve, made without helm."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

CHARTS = Path(__file__).resolve().parent / "charts"
"""The demo's own; see its README."""


def pack(folder: Path) -> bytes:
    """A chart's folder as `<folder's name>.tgz`: files in order of their paths, no times, no owners, no links."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()):
            content = path.read_bytes()
            entry = tarfile.TarInfo(f"{folder.name}/{path.relative_to(folder).as_posix()}")
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), compresslevel=9, mtime=0)
