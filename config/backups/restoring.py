"""Backup and restore of this process's database, and the hold on all rollouts that a restore ends with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import ModuleType

from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connection

from accounts.models import User
from audit import services as audit
from audit.models import Chain
from clusters.models import Cluster
from common.clock import now
from config.backups import BackupRefused, files, postgresql, sqlite
from config.backups.manifest import Manifest
from jobs.models import Freeze

BY = "manage.py restore"
RUNNING = timedelta(seconds=15)
"""The sealer notes itself every few seconds while a worker and beat run."""


def backup(file: Path) -> Manifest:
    """Write a backup of the database to a new file. Raises BackupRefused."""
    with _work_folder(file.parent) as folder:
        content = folder / "dump"
        schema = _store().dump(content)
        manifest = Manifest.of(content, schema=schema)
        files.write(file, manifest, content)
    return manifest


def restore(file: Path, *, replaces: bool, accepts_other_keys: bool) -> Manifest:
    """Replace the database by a backup of it, and hold all rollouts. Raises BackupRefused: then nothing was changed."""
    with _work_folder(Path(settings.VAR)) as folder:
        manifest, content = files.read(file, folder)
        manifest.judge(accepts_other_keys=accepts_other_keys)
        _judge_target(replaces=replaces)
        if connection.vendor == "postgresql" and manifest.schema != postgresql.schema():
            raise BackupRefused(f"Its tables are in the schema {manifest.schema}, this role's is another.")
        _store().restore(content, lambda prefix: _hold(prefix, manifest))
    call_command("migrate", interactive=False, verbosity=0)
    audit.record(
        by=BY,
        action="installation.restore",
        target=f"installation:{settings.SETPOINT_INSTALLATION}",
        target_name=f"of {manifest.at}",
        after={"at": manifest.at, "version": manifest.version, "sha256": manifest.sha256},
    )
    return manifest


def _store() -> ModuleType:
    """Return the module that dumps and restores this kind of database."""
    return postgresql if connection.vendor == "postgresql" else sqlite


@contextmanager
def _work_folder(beside: Path) -> Iterator[Path]:
    """Yield a folder for its owner alone, on the disk where the result will be."""
    try:
        folder = tempfile.TemporaryDirectory(prefix=".setpoint-backup-", dir=beside)
    except OSError as error:
        raise BackupRefused(f"{beside} cannot be written to: {error.strerror}.") from error
    with folder as path:
        yield Path(path)


def _judge_target(*, replaces: bool) -> None:
    tables = set(connection.introspection.table_names())
    is_ours = User._meta.db_table in tables
    try:
        is_empty = not (User.objects.exists() or Cluster.objects.exists()) if is_ours else not tables
        is_running = is_ours and _is_running()
    except DatabaseError:  # of another version
        is_empty, is_running = False, False
    if is_running:
        raise BackupRefused(
            "Setpoint's processes work on this database. Stop all of them, and wait "
            f"{RUNNING.total_seconds():g} s if you just did."
        )
    if not is_empty and not replaces:
        raise BackupRefused("The database is not empty. Back it up first; --replace replaces it.")


def _is_running() -> bool:
    at = now()
    is_sealed = Chain.objects.filter(checked_at__gt=at - RUNNING).exists()
    return is_sealed or Cluster.objects.filter(watch_lease_until__gt=at).exists()


def _hold(prefix: str, manifest: Manifest) -> str:
    """Return the statement that adds the freeze. Its only value from the file is a time, which the manifest's parser
    judged. It works in the tables of any version: its columns are those of the first."""
    reason = f"{Freeze.RESTORED} of {manifest.at}. Run manage.py doctor, take over what is newer, then lift it."
    at = now().strftime("%Y-%m-%d %H:%M:%S.%f") + ("+00" if connection.vendor == "postgresql" else "")
    quoted = reason.replace("'", "''")
    return f"INSERT INTO {prefix}{Freeze._meta.db_table} (reason, created_at) VALUES ('{quoted}', '{at}')"  # noqa: S608
