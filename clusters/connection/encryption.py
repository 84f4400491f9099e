"""Sealing of stored credentials: MultiFernet with keys of their own, so a leaked database or session key opens nothing.

The sealed payload names the cluster and the field, so a ciphertext copied into another row does not open there. Beside
it the row keeps the fingerprint of its key: a missing key is named, not guessed at.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

log = logging.getLogger(__name__)

FINGERPRINT_LENGTH = 16


@dataclass(frozen=True, slots=True)
class Ring:
    """Keys for one purpose: which setting has them, and the embedded installation's file in var/."""

    setting: str
    file: str

    @property
    def keys(self) -> list[str]:
        return list(getattr(settings, self.setting))


CREDENTIALS = Ring("SETPOINT_CREDENTIAL_KEYS", "credential.key")
HELM = Ring("SETPOINT_HELM_CREDENTIAL_KEYS", "helm-credential.key")
"""Only where helm runs: what it seals opens the identity that installs components."""


class KeyUnusable(Exception):
    """The setting with the keys is empty or holds something that is not a Fernet key."""


class CannotOpen(Exception):
    """A stored secret does not open: its key is not configured, or it was changed or moved. The message says which."""


@dataclass(frozen=True, slots=True)
class Sealed:
    data: bytes
    key: str
    """Fingerprint of the key it is sealed with."""


def seal(cluster: UUID, field: str, text: str, *, ring: Ring = CREDENTIALS) -> Sealed:
    """Encrypt with the newest key. Raises KeyUnusable."""
    keys = _keys(ring)
    payload = json.dumps({"cluster": str(cluster), "field": field, "text": text}).encode()
    return Sealed(Fernet(keys[0]).encrypt(payload), fingerprint(keys[0]))


def unseal(cluster: UUID, field: str, sealed: Sealed, *, ring: Ring = CREDENTIALS) -> str:
    """The text sealed for this cluster and field. Raises CannotOpen, KeyUnusable."""
    keys = _keys(ring)
    known = [fingerprint(key) for key in keys]
    if sealed.key not in known:
        log.error(
            "credential of cluster %s is sealed with key %s; configured: %s", cluster, sealed.key, ", ".join(known)
        )
        raise CannotOpen(
            f"it is encrypted with key {sealed.key}, which is not among {ring.setting} ({', '.join(known)}); "
            "add that key back, or rotate the credential"
        )
    try:
        payload = json.loads(MultiFernet([Fernet(key) for key in keys]).decrypt(bytes(sealed.data)))
    except (InvalidToken, ValueError) as error:
        log.error("credential of cluster %s does not open with its own key %s", cluster, sealed.key)
        raise CannotOpen("it was changed after it was stored; rotate the credential") from error
    if (payload.get("cluster"), payload.get("field")) != (str(cluster), field):
        log.error("credential of cluster %s was sealed for cluster %s", cluster, payload.get("cluster"))
        raise CannotOpen("it was stored for another cluster; rotate the credential")
    return str(payload["text"])


def is_newest(sealed: Sealed) -> bool:
    return sealed.key == fingerprint(_keys(CREDENTIALS)[0])


def fingerprints(ring: Ring) -> list[str]:
    """Return the fingerprints of the ring's keys, newest first. Raises KeyUnusable."""
    return [fingerprint(key) for key in _keys(ring)]


def fingerprint(key: str) -> str:
    """Names a key without giving it away: the key is 256 random bits, so its hash cannot be searched."""
    return hashlib.sha256(b"setpoint credential key\0" + key.encode()).hexdigest()[:FINGERPRINT_LENGTH]


def _keys(ring: Ring) -> list[str]:
    keys = ring.keys or [_own_key(ring)]
    for position, key in enumerate(keys, 1):
        try:
            Fernet(key)
        except ValueError as error:
            raise KeyUnusable(
                f"{ring.setting}: entry {position} is not a Fernet key (32 bytes as URL-safe base64)"
            ) from error
    return keys


def _own_key(ring: Ring) -> str:
    """The embedded installation's key, made on first use. Raises KeyUnusable in production."""
    if not settings.EMBEDDED:
        where = " where helm runs" if ring is HELM else ""
        raise KeyUnusable(f"{ring.setting} is empty: credentials cannot be stored or read without it{where}")
    file = Path(settings.VAR) / ring.file
    if not file.exists():
        # Linked into place whole: of two processes starting at once, both must read the same complete key.
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".credential-")  # mkstemp gives mode 0600
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(Fernet.generate_key())
            os.link(temporary, file)
        except FileExistsError:
            pass
        finally:
            os.unlink(temporary)
    return file.read_text().strip()
