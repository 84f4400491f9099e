"""Private files of an embedded installation: keys, the database, its journal, readable by their owner alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

UMASK = 0o077
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def settle() -> None:
    """Set the umask so that files of this process are for its owner alone.

    For servers only: other commands write static files of an image and documents, which everyone reads.
    """
    os.umask(UMASK)


def keep(folder: Path) -> None:
    """Make the folder where it is missing, and close it to others where it was made open."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    narrow((folder,))


def narrow(paths: Iterable[Path]) -> None:
    """Take what others may do. Left alone: what another user owns, what is a link, and a folder that many share."""
    for path in paths:
        try:
            there = path.lstat()
            is_ours = there.st_uid == os.geteuid() and not there.st_mode & stat.S_ISVTX
            if is_ours and not path.is_symlink() and there.st_mode & OTHERS:
                path.chmod(stat.S_IMODE(there.st_mode) & ~OTHERS)
        except FileNotFoundError:  # another process has just ended and taken its journal along
            continue


def keep_sqlite(database: Path) -> None:
    """Make the file where it is missing, for its owner alone: what SQLite puts beside it has the same permissions."""
    beside = [database.with_name(database.name + suffix) for suffix in ("-wal", "-shm", "-journal")]
    with suppress(FileExistsError):
        os.close(os.open(database, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    narrow((database, *beside))
