"""Idempotency-Key, without the framework: what an API view asks of the room that keeps the keys.

Apart from common.api, because that module can be imported only once the REST framework's own settings are ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from common.errors import Refusal


class KeyInUse(Refusal):
    """Another request with this Idempotency-Key is still being worked on."""

    status = 409
    code = "in-progress"


class KeyReused(Refusal):
    """This Idempotency-Key was used for something else."""

    status = 422
    code = "idempotency-key-reused"


class RequestClaim(Protocol):
    """The right to work on one Idempotency-Key."""

    def finish(self, *, status: int, headers: Mapping[str, str], body: str) -> None: ...

    def forget(self) -> None: ...


class StoredAnswer(Exception):
    def __init__(self, *, status: int, headers: Mapping[str, str], body: str) -> None:
        super().__init__(status)
        self.status, self.headers, self.body = status, headers, body


class ClaimKey(Protocol):
    def __call__(self, *, user: Any, key: str, fingerprint: str) -> RequestClaim:
        """Raises Answer when there is one already, KeyInUse, KeyReused."""


class _Keys:
    """Filled by the accounts room, which owns the table."""

    claim: ClaimKey | None = None


idempotency = _Keys()
