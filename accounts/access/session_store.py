"""Session storage: Django's table, under the hash of the key that the browser holds.

The table alone opens nothing: a stolen backup, or the SQLite file, holds no key that a request could carry.
"""

from __future__ import annotations

import hashlib
from typing import Any

from django.contrib.sessions.backends import db
from django.contrib.sessions.base_session import AbstractBaseSession
from django.contrib.sessions.models import Session
from django.utils import timezone

HASH_CHARACTERS = 40
"""Of the column: 160 of SHA-256's bits, as many as the key itself has."""


_OF = "_setpoint_row"
"""In what a session carries, which Django signs: the row that it was written for."""


def stored(key: str) -> str:
    """Return the hash that the table holds in place of a browser's key."""
    return hashlib.sha256(key.encode()).hexdigest()[:HASH_CHARACTERS]


class SessionStore(db.SessionStore):
    """Django's own, but for what it asks the table for. Nothing here is asynchronous, so only these are replaced."""

    @property
    def stored_key(self) -> str | None:
        """The key of this session in the table and in LiveSession; None before it is saved."""
        return stored(self.session_key) if self.session_key else None

    def exists(self, session_key: str) -> bool:
        return super().exists(stored(session_key))

    def create_model_instance(self, data: dict[str, Any]) -> AbstractBaseSession:
        made = super().create_model_instance(data)
        made.session_key = stored(made.session_key)
        made.session_data = self.encode(data | {_OF: made.session_key})
        return made

    def load(self) -> dict[str, Any]:
        """Session data copied from another row is refused: its mark covers the session key."""
        data = super().load()
        if data and data.pop(_OF, "") != self.stored_key:
            self._session_key = None
            return {}
        return data

    def delete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            super().delete(stored(key))

    def _get_session_from_db(self) -> Session | None:
        session = Session.objects.filter(session_key=self.stored_key, expire_date__gt=timezone.now()).first()
        if session is None:
            self._session_key = None
        return session
