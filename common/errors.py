"""Refusals that people and automation see. Services raise them; `config.errors` turns them into one shape of answer.

A refusal's message says what, why and what would be right. `fields` maps a field's path (`settings[3].value`) to
messages, so that a form and a client can both point at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Refusal(Exception):
    """Base. `status` is the HTTP status, `code` a stable word for programs."""

    status = 400
    code = "refused"

    def __init__(self, message: str, *, fields: Mapping[str, Sequence[str]] | None = None) -> None:
        super().__init__(message)
        self.fields = {name: list(messages) for name, messages in (fields or {}).items()}


class Invalid(Refusal):
    """Bad input: `fields` names each."""

    status = 422
    code = "invalid"


class NotAllowed(Refusal):
    """This person may not do this; the message names the role or rule."""

    status = 403
    code = "not-allowed"


class WrongState(Refusal):
    """The action is not possible in the present state; the message names the state in which it would be."""

    status = 409
    code = "wrong-state"


class Stale(Refusal):
    """The caller saw an older version (If-Match)."""

    status = 412
    code = "stale"


class Missing(Refusal):
    status = 404
    code = "missing"


class IllegalMove(Exception):
    """A programming error: a status change that the table of moves does not list."""


class LostRace(Exception):
    """Another worker changed the row first. Drop the work; the winner carries on."""
