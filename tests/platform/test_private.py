"""Files of an embedded installation belong to the account it runs as: no other account on the machine reads them."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from config import private

ROOT = Path(__file__).resolve().parents[2]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_a_new_folder_and_database_are_the_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "var"
    private.keep(folder)
    private.keep_sqlite(folder / "db.sqlite3")
    with sqlite3.connect(folder / "db.sqlite3") as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE t (x)")
        assert {mode(path) for path in folder.iterdir()} == {0o600}  # journal and shared memory, too
    database.close()
    assert mode(folder) == 0o700


def test_what_was_made_open_is_closed_at_the_next_start(tmp_path: Path) -> None:
    folder, file = tmp_path / "var", tmp_path / "var" / "setpoint.sqlite3"
    folder.mkdir(mode=0o755)
    file.write_bytes(b"")
    file.chmod(0o644)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SETPOINT_", "DJANGO_"))}
    environment |= {"SETPOINT_VAR": str(folder), "DJANGO_SETTINGS_MODULE": "config.settings"}
    command = [sys.executable, "-c", "import django; django.setup()"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=120)
    assert (mode(folder), mode(file)) == (0o700, 0o600)


def test_links_and_shared_folders_are_left_alone(tmp_path: Path) -> None:
    target, link, shared = tmp_path / "target", tmp_path / "link", tmp_path / "shared"
    target.write_bytes(b"")
    target.chmod(0o644)
    link.symlink_to(target)
    shared.mkdir()
    shared.chmod(0o1777)
    private.narrow((link, shared, tmp_path / "gone"))
    assert (mode(target), mode(shared)) == (0o644, 0o777 | stat.S_ISVTX)
