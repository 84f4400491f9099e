"""Checks of Setpoint's keys: present, long enough, and the ones that what is stored was made with."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from audit import macs, sealing
from audit.models import Record, Seal
from clusters.connection import encryption
from clusters.models import AdministratorCredential, HelmCredential
from common import hooks
from config.doctor.findings import Finding, ok, problem, warning

KEYS = "keys"
SECRETS = ("SETPOINT_SECRET_KEY", "SETPOINT_TOKEN_PEPPER", "SETPOINT_AUDIT_KEY")
SHORTEST = 32
"""Characters: what `make secrets` and an embedded installation make is longer."""
_SETTINGS = {"SETPOINT_SECRET_KEY": "SECRET_KEY"}
"""Django's names of variables that it calls otherwise."""


def configured() -> Iterator[Finding]:
    """Look at the variables alone, so that it also works without a database."""
    short = [name for name in SECRETS if len(str(getattr(settings, _SETTINGS.get(name, name)))) < SHORTEST]
    if short:
        yield warning(
            KEYS,
            f"Shorter than {SHORTEST} characters: {', '.join(short)}.",
            "Replace each as docs/operating.md says under Rotate keys.",
        )
    else:
        yield ok(KEYS, f"{', '.join(SECRETS)} are set and long enough.")
    for ring in (encryption.CREDENTIALS, encryption.HELM):
        yield from _ring(ring)


def _ring(ring: encryption.Ring) -> Iterator[Finding]:
    """Judge the keys of a ring, and make none: an embedded installation makes its own when it first needs one."""
    if not ring.keys and not settings.EMBEDDED and ring is encryption.HELM:
        yield ok(KEYS, f"{ring.setting} is not set in this process, as is right except where helm runs.")
    elif not ring.keys and settings.EMBEDDED and not _own_file(ring).exists():
        yield ok(KEYS, f"{ring.setting}: no key was needed yet.")
    else:
        try:
            prints = encryption.fingerprints(ring)
        except encryption.KeyUnusable as error:
            yield problem(KEYS, f"{error}.", "Set it to the keys of this installation, the newest first.")
        else:
            yield ok(KEYS, f"{ring.setting} has the keys {', '.join(prints)} (fingerprints).")


def _own_file(ring: encryption.Ring) -> Path:
    return Path(settings.VAR) / ring.file


def _is_usable(ring: encryption.Ring) -> bool:
    return bool(ring.keys) or (settings.EMBEDDED and _own_file(ring).exists())


def opened() -> Iterator[Finding]:
    """Open every stored secret, and forget it."""
    opens = 0
    is_usable = _is_usable(encryption.CREDENTIALS)
    for secret in hooks.stored_secrets():
        data, key = (getattr(secret.row, column) for column in secret.columns)
        if not data:
            continue
        if not is_usable:
            yield problem(
                KEYS, f"{secret.title} cannot be opened: there is no key.", "Put the installation's keys back."
            )
            return
        try:
            encryption.unseal(secret.place, secret.field, encryption.Sealed(bytes(data), key))
            opens += 1
        except (encryption.CannotOpen, encryption.KeyUnusable) as error:
            yield problem(
                KEYS, f"{secret.title} cannot be opened: {error}.", "Put that key back, or enter the secret again."
            )
    yield ok(KEYS, f"{opens} stored secrets open.")
    yield from _of_helm()


def _of_helm() -> Iterator[Finding]:
    if not _is_usable(encryption.HELM):
        return  # only where helm runs
    for model in (HelmCredential, AdministratorCredential):
        for row in model.objects.select_related("cluster"):
            sealed = encryption.Sealed(bytes(row.sealed), row.key)
            try:
                encryption.unseal(row.cluster_id, model.FIELD, sealed, ring=encryption.HELM)
            except (encryption.CannotOpen, encryption.KeyUnusable) as error:
                yield problem(
                    KEYS,
                    f"The credential of {row.cluster} that installs components cannot be opened: {error}.",
                    f"Enter it again: manage.py helm_credential {row.cluster}.",
                )


def audit() -> Iterator[Finding]:
    """Hold the audit key against the last sealed record; `verify_audit` looks at all of them."""
    last = Seal.objects.order_by("-seq").first()
    if last is None:
        yield ok(KEYS, "No audit record is sealed yet.")
        return
    record = Record.objects.filter(pk=last.record_id).first()
    before = Seal.objects.filter(seq=last.seq - 1).values_list("seal", flat=True).first() or ""
    is_whole = record is not None and (last.scheme == Seal.Scheme.FIRST or macs.is_right(record))
    if record is not None and is_whole:
        right = sealing.seal_of(record, seq=last.seq, previous=before, at=last.at, scheme=last.scheme)
        is_whole = hmac.compare_digest(right, last.seal)
    if not is_whole:
        yield problem(
            KEYS,
            f"SETPOINT_AUDIT_KEY does not fit the last sealed audit record, number {last.seq}.",
            "Put the key back that sealed it. If it is the right one, the record was changed: manage.py verify_audit.",
        )
    elif why := sealing.reason_not_to_seal():
        yield problem(KEYS, f"The audit record is contradicted: {why}.", "Look at manage.py verify_audit.")
    else:
        yield ok(KEYS, f"SETPOINT_AUDIT_KEY fits the last sealed audit record, number {last.seq}.")
