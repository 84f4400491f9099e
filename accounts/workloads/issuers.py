"""Public keys of issuers: discovery document and JWKS, fetched under the egress policy and kept for minutes.

Only issuers that a rule names are asked. A token with an unknown key id makes the keys be read again, so that a
rotation is noticed, but not more often than every few seconds, so that made-up ids cost the issuer nothing. Keys that
are too old are not used: an issuer that is away is a refusal.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests

from accounts.workloads.refusals import ExchangeRefused
from common import hooks

log = logging.getLogger(__name__)

KEPT_SECONDS = 300.0
"""A key that its issuer no longer publishes is accepted for so long at most, by each process."""
AGAIN_SECONDS = 10.0
"""Between two readings for the sake of an unknown key, and after a failure."""
MOST_ISSUERS = 64
MOST_KEYS = 100


@dataclass(frozen=True, slots=True)
class _Reading:
    at: float
    keys: Mapping[str, Any] | None
    failure: str = ""


_kept: OrderedDict[str, _Reading] = OrderedDict()
_locks: dict[str, threading.Lock] = {}
_guard = threading.Lock()


def keys_of(issuer: str, *, key_id: object = None) -> Mapping[str, Any]:
    """Return the issuer's JWKS; read again where it is old, or has no key `key_id`. Waits on the network.

    Raises ExchangeRefused where the issuer gives none.
    """
    if reading := _usable(issuer, key_id):
        return _keys(reading, issuer)
    with _lock(issuer):
        reading = _usable(issuer, key_id)
        if reading is None:
            reading = _read(issuer)
            _keep(issuer, reading)
    return _keys(reading, issuer)


def forget() -> None:
    """Drop all that is kept."""
    with _guard:
        _kept.clear()


def _usable(issuer: str, key_id: object) -> _Reading | None:
    reading = _kept.get(issuer)
    if reading is None:
        return None
    age = time.monotonic() - reading.at
    if age < AGAIN_SECONDS:
        return reading
    if reading.keys is None or age >= KEPT_SECONDS:
        return None
    is_known = key_id is None or any(row.get("kid") == key_id for row in reading.keys["keys"])
    return reading if is_known else None


def _keys(reading: _Reading, issuer: str) -> Mapping[str, Any]:
    if reading.keys is None:
        description = f"The keys of the issuer {issuer} cannot be read now: {reading.failure}."
        raise ExchangeRefused("temporarily_unavailable", description, status=503, retry_after=int(AGAIN_SECONDS))
    return reading.keys


def _read(issuer: str) -> _Reading:
    try:
        with hooks.web_session()[0] as session:
            document = _fetch(session, f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            keys = _fetch(session, _address_of_keys(document, issuer))
        _check(keys)
    except requests.RequestException as error:
        log.warning("workload identity: %s gives no keys (%s)", issuer, type(error).__name__)
        return _Reading(time.monotonic(), None, "it cannot be reached")
    except ValueError as error:
        log.warning("workload identity: %s gives no keys (%s)", issuer, error)
        return _Reading(time.monotonic(), None, str(error))
    return _Reading(time.monotonic(), keys)


def _fetch(session: requests.Session, url: str) -> Any:
    response = session.get(url, headers={"Accept": "application/json"})
    if response.status_code != requests.codes.ok:
        raise ValueError(f"it answers with status {response.status_code}")
    try:
        return response.json()
    except ValueError:
        raise ValueError("its answer is no JSON") from None


def _address_of_keys(document: Any, issuer: str) -> str:
    if not isinstance(document, dict) or document.get("issuer") != issuer:
        raise ValueError("its discovery document names another issuer")
    url = document.get("jwks_uri")
    schemes = ("https://",) if urlsplit(issuer).scheme == "https" else ("https://", "http://")
    if not isinstance(url, str) or not url.startswith(schemes):
        raise ValueError("its discovery document has no usable jwks_uri")
    return url


def _check(keys: Any) -> None:
    rows = keys.get("keys") if isinstance(keys, dict) else None
    if not isinstance(rows, list) or len(rows) > MOST_KEYS or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"it publishes no list of at most {MOST_KEYS} keys")


def _keep(issuer: str, reading: _Reading) -> None:
    with _guard:
        _kept[issuer] = reading
        _kept.move_to_end(issuer)
        while len(_kept) > MOST_ISSUERS:
            _locks.pop(_kept.popitem(last=False)[0], None)


def _lock(issuer: str) -> threading.Lock:
    with _guard:
        return _locks.setdefault(issuer, threading.Lock())
