"""A backup holds everything as of one moment; a restore takes a whole and fitting one, or changes nothing."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command

from accounts.models import User
from audit import tasks
from audit.models import Record
from clusters.models import Cluster
from config.backups import BackupRefused, restoring, sqlite
from config.backups.postgresql import leave_out_unknown_settings
from jobs.models import Freeze
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def backup(settings, tmp_path: Path) -> Path:
    """Return a backup with the cluster `kept`; since then it was renamed and `added` was added."""
    settings.SETPOINT_CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    UserFactory()
    kept = ClusterFactory(name="kept")
    file = tmp_path / "backup.tgz"
    call_command("backup", str(file), stdout=io.StringIO())
    Cluster.objects.filter(pk=kept.pk).update(name="renamed")
    ClusterFactory(name="added")
    return file


def restore(file: Path, *options: str) -> str:
    out = io.StringIO()
    call_command("restore", str(file), *options, stdout=out)
    return out.getvalue()


def names() -> list[str]:
    return sorted(Cluster.objects.values_list("name", flat=True))


def test_what_was_is_again_and_all_rollouts_are_held(backup: Path) -> None:
    assert backup.stat().st_mode & 0o777 == 0o600
    restore(backup, "--replace")
    assert names() == ["kept"]
    assert Freeze.after_restore().count() == 1
    assert Record.objects.filter(action="installation.restore").count() == 1
    restore(backup, "--replace")  # once more is no other
    assert (names(), Freeze.after_restore().count()) == (["kept"], 1)


def test_a_database_in_use_is_not_replaced_unasked_and_an_empty_one_is(backup: Path) -> None:
    with pytest.raises(CommandError, match="--replace"):
        restore(backup)
    assert names() == ["added", "renamed"]
    Cluster.objects.all().delete()
    User.objects.all().delete()
    restore(backup)
    assert names() == ["kept"]


def test_a_database_that_processes_work_on_is_not_replaced(backup: Path, clock) -> None:
    tasks.seal()
    with pytest.raises(CommandError, match="processes"):
        restore(backup, "--replace")
    assert names() == ["added", "renamed"]
    clock.forward(restoring.RUNNING.total_seconds() + 1)
    restore(backup, "--replace")


def test_a_backup_overwrites_nothing_and_leaves_nothing_behind(backup: Path) -> None:
    before = backup.read_bytes()
    with pytest.raises(CommandError, match="exists"):
        call_command("backup", str(backup))
    assert backup.read_bytes() == before
    with pytest.raises(CommandError, match="cannot be written"):
        call_command("backup", str(backup.parent / "nowhere" / "b.tgz"))
    assert [path.name for path in backup.parent.iterdir()] == [backup.name]


def test_a_file_that_is_cut_is_refused(backup: Path) -> None:
    whole = backup.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 100, len(whole) - 8, len(whole) - 1):
        backup.write_bytes(whole[:length])
        _is_refused(backup)


def _is_refused(file: Path, *options: str) -> str:
    with pytest.raises(CommandError) as refused:
        restore(file, "--replace", *options)
    assert names() == ["added", "renamed"]
    assert not Freeze.after_restore().exists()
    return str(refused.value)


def test_content_with_another_byte_is_refused(backup: Path) -> None:
    rewritten(backup, lambda _: None, lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    assert "SHA-256" in _is_refused(backup)


def rewritten(
    file: Path, change: Callable[[dict[str, Any]], object], alter: Callable[[bytes], bytes] = lambda content: content
) -> None:
    """Change the manifest of a backup, or its content, in a file that is otherwise right."""
    with tarfile.open(file) as archive:
        manifest = json.loads(archive.extractfile("manifest.json").read())  # type: ignore[union-attr]
        content = alter(archive.extractfile("database").read())  # type: ignore[union-attr]
    change(manifest)
    with tarfile.open(file, "w:gz") as archive:
        for name, data in (("manifest.json", json.dumps(manifest).encode()), ("database", content)):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def test_a_manifest_that_is_not_as_it_was_made_is_refused(backup: Path) -> None:
    cases: list[tuple[Callable[[Any], object], str]] = [
        (lambda m: m.update(at="2020-01-01T00:00:00+00:00"), "changed"),
        (lambda m: m.update(at="2020-01-01 00:00:00'); --"), "time"),
        (lambda m: m.update(at="20200101T000000"), "time"),
        (lambda m: m.update(mac="0" * 64), "changed"),
        (lambda m: m.update(more=1), "changed"),
        (lambda m: m.pop("keys"), "changed"),
        (lambda m: m.update(size="1"), "changed"),
        (lambda m: m.update(format=99), "newer"),
        (lambda m: m["migrations"].append("jobs.9999_of_the_future"), "newer"),
        (lambda m: m.update(database="another"), "another"),
        (lambda m: m.clear(), "manifest"),
    ]
    whole = backup.read_bytes()
    for change, why in cases:
        backup.write_bytes(whole)
        rewritten(backup, change)
        assert why in _is_refused(backup)


def test_text_that_is_no_time_is_refused_also_where_keys_are_lost(backup: Path, settings) -> None:
    rewritten(backup, lambda m: m.update(at="'); DROP TABLE accounts_user; --"))
    settings.SETPOINT_AUDIT_KEY = "another key, of another installation"
    with pytest.raises(CommandError, match="time"):
        restore(backup, "--replace", "--other-keys")


def test_keys_that_do_not_fit_are_named_and_can_be_accepted(backup: Path, settings) -> None:
    for key in ("AUDIT_KEY", "TOKEN_PEPPER", "INSTALLATION", "CREDENTIAL_KEYS"):
        variable = f"SETPOINT_{key}"
        right = getattr(settings, variable)
        other = [Fernet.generate_key().decode()] if key == "CREDENTIAL_KEYS" else "another key, of another installation"
        setattr(settings, variable, other)
        refusal = _is_refused(backup)
        assert variable in refusal
        assert str(other) not in refusal
        setattr(settings, variable, right)
    settings.SETPOINT_CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    restore(backup, "--replace", "--other-keys")
    assert names() == ["kept"]


def test_no_key_is_in_a_backup(backup: Path, settings) -> None:
    content = gzip.decompress(backup.read_bytes())
    keys = (*settings.SETPOINT_CREDENTIAL_KEYS, settings.SETPOINT_AUDIT_KEY, settings.SETPOINT_TOKEN_PEPPER)
    for key in (*keys, settings.SECRET_KEY):
        assert key.encode() not in content


def test_other_files_are_refused(backup: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for data in (b"", b"text", gzip.compress(b"text"), sqlite3.sqlite_version.encode() * 1000):
        other.write_bytes(data)
        _is_refused(other)
    with tarfile.open(other, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("/etc/passwd"))
    _is_refused(other)
    assert "cannot be read" in _is_refused(tmp_path / "absent")


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a SQLite database in WAL mode with numbers from 0 to 9999, which takes the place of the product's."""
    file = tmp_path / "database.sqlite3"
    with closing(sqlite3.connect(file)) as opened:
        opened.execute("PRAGMA journal_mode=WAL")
        opened.execute("CREATE TABLE t (n INTEGER, text TEXT)")
        opened.executemany("INSERT INTO t VALUES (?, ?)", [(n, f"row {n} " * 20) for n in range(10_000)])
        opened.commit()
    monkeypatch.setattr(sqlite, "_database", lambda: file)
    return file


def total(file: Path) -> int:
    with closing(sqlite3.connect(file)) as opened:
        assert opened.execute("PRAGMA quick_check").fetchone() == ("ok",)
        return int(opened.execute("SELECT sum(n) FROM t").fetchone()[0])


def emptied(file: Path) -> None:
    with closing(sqlite3.connect(file)) as opened:
        opened.execute("UPDATE t SET n = 1")
        opened.commit()


def test_sqlite_is_copied_while_it_is_written_to_and_a_damaged_copy_is_refused(database: Path, tmp_path: Path) -> None:
    content, whole = tmp_path / "content", total(database)
    with closing(sqlite3.connect(database)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE t SET n = 0")
        sqlite.dump(content)
        writer.rollback()
    assert total(content) == whole
    emptied(database)
    good = content.read_bytes()
    content.write_bytes(good[:8192] + b"\xff" * 16384 + good[24576:])
    with pytest.raises(BackupRefused):
        sqlite.restore(content, lambda _: "SELECT 1")
    content.write_bytes(good)
    with pytest.raises(BackupRefused):
        sqlite.restore(content, lambda _: "INSERT INTO absent VALUES (1)")
    assert total(database) == 10_000
    sqlite.restore(content, lambda _: "UPDATE t SET n = 7 WHERE n = 0")
    assert total(database) == whole + 7


def test_sqlite_is_replaced_in_one_transaction(database: Path, tmp_path: Path) -> None:
    """Kill the copy that a restore ends with, when most of it is written."""
    content = tmp_path / "content"
    sqlite.dump(content)
    emptied(database)
    script = (
        "import os, sqlite3, sys\n"
        "source, target = (sqlite3.connect(path) for path in sys.argv[1:])\n"
        "end = lambda status, remaining, total: remaining < 20 and os._exit(9)\n"
        "source.backup(target, pages=10, progress=end)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script, str(content), str(database)], check=False)
    assert ended.returncode == 9
    assert total(database) == 10_000


def test_what_a_newer_pg_restore_sets_is_left_out_for_an_older_server(tmp_path: Path) -> None:
    """PostgreSQL 17's first statement ended every restore into 15 and 16; the rest of the script is not touched."""
    script = tmp_path / "script.sql"
    body = "\nCREATE FUNCTION f() ...\nSET transaction_timeout = 0;\n" + "x" * 10000
    beginning = "\\restrict abc\nSET statement_timeout = 0;\nSET transaction_timeout = 0;\nSET lock_timeout = 0;\n"
    script.write_text(beginning + body)
    leave_out_unknown_settings(script, {"statement_timeout", "lock_timeout"})
    assert script.read_text() == beginning.replace("SET trans", "--  trans") + body
    script.write_text(beginning + body)
    leave_out_unknown_settings(script, {"statement_timeout", "lock_timeout", "transaction_timeout"})
    assert script.read_text() == beginning + body
