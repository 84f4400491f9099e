"""Manifests of backups: which version and database they are of, the digest of their content, and which keys they need.

A manifest carries a MAC by the audit key, so that neither it nor the content that it names can be changed unnoticed.
Keys are named by fingerprints only.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from audit import macs
from clusters.connection import encryption
from common import hooks
from common.clock import now
from config.backups import BackupRefused
from contract import names

FORMAT = 1
PURPOSE = b"setpoint backup, format 1"
KEYS = {"SETPOINT_AUDIT_KEY": "SETPOINT_AUDIT_KEY", "SETPOINT_TOKEN_PEPPER": "SETPOINT_TOKEN_PEPPER"}
"""Variables that must fit, with the names of their settings. SETPOINT_SECRET_KEY ends sessions only."""
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Manifest:
    format: int
    version: str
    """Of Setpoint."""
    at: str
    """ISO 8601, UTC."""
    database: str
    """sqlite or postgresql."""
    schema: str
    """PostgreSQL's, that the tables are in; empty for SQLite."""
    installation: str
    migrations: list[str]
    """`app.name` of each that is applied, sorted."""
    sha256: str
    """Of the content."""
    size: int
    keys: dict[str, str]
    """Fingerprint by variable."""
    credential_keys: list[str]
    """Fingerprints of the keys that stored secrets are sealed with."""
    mac: str = field(default="")

    @classmethod
    def of(cls, content: Path, *, schema: str) -> Manifest:
        """Describe a database that was just written to `content`."""
        unsigned = cls(
            FORMAT,
            names.RELEASE,
            now().isoformat(timespec="seconds"),
            connection.vendor,
            schema,
            settings.SETPOINT_INSTALLATION,
            sorted(".".join(key) for key in MigrationRecorder(connection).applied_migrations()),
            digest(content),
            content.stat().st_size,
            {variable: fingerprint(variable) for variable in KEYS},
            sorted({key for secret in hooks.stored_secrets() if (key := getattr(secret.row, secret.columns[1]))}),
        )
        return cls(**{**asdict(unsigned), "mac": unsigned.right_mac()})

    @classmethod
    def parse(cls, raw: Any) -> Manifest:
        """Raises BackupRefused for what is no manifest of this format."""
        if not isinstance(raw, Mapping) or not isinstance(raw.get("format"), int):
            raise BackupRefused("It has no manifest of a backup.")
        if raw["format"] > FORMAT:
            raise BackupRefused(f"It is of a newer Setpoint, {str(raw.get('version'))[:40]}: restore it with that.")
        kinds = cls.__annotations__
        shapes = {"int": int, "str": str, "list[str]": list, "dict[str, str]": dict}
        if set(raw) != set(kinds) or not all(isinstance(raw[key], shapes[kind]) for key, kind in kinds.items()):
            raise BackupRefused("Its manifest was changed: it has not the fields of a backup's.")
        try:
            at = datetime.fromisoformat(raw["at"])
        except ValueError:
            raise BackupRefused("Its manifest was changed: its time is none.") from None
        if at.isoformat(timespec="seconds") != raw["at"]:  # it goes into a statement, and no MAC holds with lost keys
            raise BackupRefused("Its manifest was changed: its time is not written as Setpoint writes it.")
        return cls(**raw)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def right_mac(self) -> str:
        values = asdict(self)
        del values["mac"]
        return macs.mark(PURPOSE, values)

    def judge(self, *, accepts_other_keys: bool) -> None:
        """Hold the manifest against this process's version, database and keys. Raises BackupRefused."""
        known = set(MigrationLoader(connection=None).disk_migrations)
        ours = {f"{app}.{name}" for app, name in known}
        if newer := [name for name in self.migrations if name not in ours]:
            raise BackupRefused(
                f"It is of Setpoint {self.version}, whose database is newer than this version knows ({newer[0]}): "
                "restore it with that version."
            )
        if self.database != connection.vendor:
            raise BackupRefused(f"It is of {self.database}, and this database is {connection.vendor}.")
        if wrong := self.keys_that_do_not_fit():
            if not accepts_other_keys:
                raise BackupRefused(
                    f"Keys of this process do not fit it: {', '.join(wrong)}. Give the process the keys that the "
                    "backup was made with. If they are lost: --other-keys, and docs/operating.md has the consequences."
                )
            if "SETPOINT_AUDIT_KEY" in wrong:
                return  # its MAC can be checked by no one; the digest still is
        if not hmac.compare_digest(self.mac, self.right_mac()):
            raise BackupRefused("Its manifest was changed after it was made.")

    def keys_that_do_not_fit(self) -> list[str]:
        wrong = [variable for variable in KEYS if self.keys.get(variable) != fingerprint(variable)]
        if self.installation != settings.SETPOINT_INSTALLATION:
            wrong.append("SETPOINT_INSTALLATION")
        if self.credential_keys:
            try:
                configured = set(encryption.fingerprints(encryption.CREDENTIALS))
            except encryption.KeyUnusable:
                configured = set()
            if not configured.issuperset(self.credential_keys):
                wrong.append("SETPOINT_CREDENTIAL_KEYS")
        return wrong


def fingerprint(variable: str) -> str:
    """Name a key without giving it away: slow to compute, and so short that a guess cannot be confirmed by it."""
    key = str(getattr(settings, KEYS[variable])).encode()
    return hashlib.scrypt(key, salt=f"setpoint {variable}".encode(), n=2**14, r=8, p=1, dklen=4).hex()


def digest(content: Path) -> str:
    result = hashlib.sha256()
    with content.open("rb") as file:
        while chunk := file.read(_CHUNK):
            result.update(chunk)
    return result.hexdigest()
