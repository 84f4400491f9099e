"""Sealing for rooms below this one, which cannot import the encryption (common.hooks)."""

from __future__ import annotations

from uuid import UUID

from clusters.connection import encryption
from common import hooks


def answer() -> list[hooks.Sealing]:
    return [hooks.Sealing(_seal, _unseal)]


def _seal(place: UUID, field: str, text: str) -> tuple[bytes, str]:
    try:
        sealed = encryption.seal(place, field, text)
    except encryption.KeyUnusable as error:
        raise hooks.NotSealed(str(error)) from error
    return sealed.data, sealed.key


def _unseal(place: UUID, field: str, data: bytes, key: str) -> str:
    try:
        return encryption.unseal(place, field, encryption.Sealed(bytes(data), key))
    except (encryption.CannotOpen, encryption.KeyUnusable) as error:
        raise hooks.NotSealed(str(error)) from error
