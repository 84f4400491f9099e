"""Writing the audit record."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.contrib.auth.base_user import AbstractBaseUser
from django.core.serializers.json import DjangoJSONEncoder

from audit.models import Record
from common.requests import request_id

SYSTEM = "system"
MASK = "••••••"
MESSAGE_CHARACTERS = 4000

_SECRET = re.compile(
    r"passw|passphrase|secret|token|credential|kubeconfig|authorization|cookie"
    r"|(private|client|api|access|signing)[-_ ]?key",
    re.IGNORECASE,
)
_NOT_SECRET = re.compile(r"_(id|name|at|until|hash|key_fingerprint)$|^token_scopes$|^credential_key$", re.IGNORECASE)


def record(
    *,
    by: AbstractBaseUser | str | None,
    action: str,
    target: str,
    target_name: str = "",
    cluster_id: UUID | None = None,
    message: str = "",
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> Record:
    """Record an action in the caller's transaction: no change without its record, no record without its change.

    `by` None is the system itself; text names a program. `action` is `object.verb`, `target` is `kind:id`. Values under
    keys that name a secret are masked before they are stored.
    """
    return Record.objects.create(
        actor=_clip(actor_of(by), 200),
        action=action,
        target=target,
        target_name=_clip(target_name, 200),
        cluster_id=cluster_id,
        request_id=request_id()[:64],
        message=_clip(message, MESSAGE_CHARACTERS),
        before=_masked_json(before),
        after=_masked_json(after),
    )


def actor_of(by: AbstractBaseUser | str | None) -> str:
    """`ann@example.com`, or `ann@example.com (token ci, sp_1a2b…)` when she acts through a token."""
    if by is None:
        return SYSTEM
    if isinstance(by, str):
        return by
    token = getattr(by, "acting_token", None)
    # The name is for reading and may be long; the id, which identifies, must survive the clip.
    return f"{by} (token {str(token.name)[:40]}, sp_{token.pk})" if token else str(by)


def _masked_json(values: Mapping[str, Any] | None) -> Any:
    if values is None:
        return None
    return _masked(json.loads(json.dumps(values, cls=DjangoJSONEncoder)))


def _masked(value: Any, name: str = "") -> Any:
    if name and value not in (None, "", [], {}) and _SECRET.search(name) and not _NOT_SECRET.search(name):
        return value if isinstance(value, bool) else MASK
    if isinstance(value, dict):
        return {_clean(key): _masked(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # PostgreSQL's jsonb has no infinity
    return _clean(value) if isinstance(value, str) else value


def _clip(text: str, most: int) -> str:
    text = _clean(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def _clean(text: str) -> str:
    """PostgreSQL stores neither NUL nor lone surrogates; a record must never fail because of what it tells of."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
