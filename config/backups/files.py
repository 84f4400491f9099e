"""Files of backups: a gzipped tar of the manifest and the database, complete or not there at all."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path

from config.backups import BackupRefused
from config.backups.manifest import Manifest, digest

MANIFEST, CONTENT = "manifest.json", "database"
LARGEST_MANIFEST = 1024 * 1024
_CHUNK = 1024 * 1024


def write(file: Path, manifest: Manifest, content: Path) -> None:
    """Write beside the file, and rename what is complete. Readable by its owner alone. Raises BackupRefused."""
    if file.exists():
        raise BackupRefused(f"{file} exists already; a backup overwrites nothing.")
    try:
        handle, partial = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")  # mkstemp gives mode 0600
    except OSError as error:
        raise BackupRefused(f"{file.parent} cannot be written to: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "wb") as out:
            with tarfile.open(fileobj=out, mode="w:gz", compresslevel=6) as archive:
                text = json.dumps(manifest.to_json(), indent=2).encode()
                entry = tarfile.TarInfo(MANIFEST)
                entry.size, entry.mode = len(text), 0o600
                archive.addfile(entry, io.BytesIO(text))
                entry = tarfile.TarInfo(CONTENT)
                entry.size, entry.mode = manifest.size, 0o600
                with content.open("rb") as database:
                    archive.addfile(entry, database)
            out.flush()
            os.fsync(out.fileno())
        os.rename(partial, file)
    except OSError as error:
        raise BackupRefused(f"{file} cannot be written: {error.strerror}.") from error
    finally:
        Path(partial).unlink(missing_ok=True)


def read(file: Path, folder: Path) -> tuple[Manifest, Path]:
    """Return the manifest and the content's copy in `folder`, whose digest fits. Raises BackupRefused."""
    try:
        with tarfile.open(file, mode="r:gz") as archive:
            entry = archive.next()
            if entry is None or entry.name != MANIFEST or not entry.isreg() or entry.size > LARGEST_MANIFEST:
                raise BackupRefused(f"{file} is not a backup that manage.py backup has made.")
            with archive.extractfile(entry) as text:  # type: ignore[union-attr]
                manifest = Manifest.parse(json.loads(text.read()))
            entry = archive.next()
            if entry is None or entry.name != CONTENT or not entry.isreg() or entry.size != manifest.size:
                raise BackupRefused(f"{file} was changed: its content is not what its manifest names.")
            content = folder / CONTENT
            with archive.extractfile(entry) as packed, content.open("xb") as out:  # type: ignore[union-attr]
                shutil.copyfileobj(packed, out)
            if archive.next() is not None:
                raise BackupRefused(f"{file} was changed: it has more than a backup has.")
            while archive.fileobj.read(_CHUNK):  # up to the checksum at gzip's end
                pass
    except OSError as error:
        if isinstance(error, tarfile.ReadError | EOFError) or error.errno is None:
            raise _damaged(file) from error
        raise BackupRefused(f"{file} cannot be read: {error.strerror}.") from error
    except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
        raise _damaged(file) from error
    if digest(content) != manifest.sha256:
        raise BackupRefused(f"{file} was changed: its content has another SHA-256 than its manifest names.")
    return manifest, content


def _damaged(file: Path) -> BackupRefused:
    return BackupRefused(f"{file} is cut or damaged, or no backup.")
