"""The chain over audit records, so that whoever can write to the database cannot rewrite history unseen.

Each record's seal is HMAC-SHA256, with a key that is not in the database, over the previous seal, its own number and
its content. A change breaks the record's seal, a removal or a reordering breaks the numbers or the next seal. A cut
tail leaves a shorter chain that is whole in itself: for that the head is logged after each sealing, and
`manage.py verify_audit --head` is given one from outside. What is not sealed yet, about a second's worth, is
unprotected.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import structlog
from django.conf import settings
from django.db import transaction

from audit.models import Chain, Record
from common.clock import now

SET = 500
"""Records of one sealing: one transaction of some 50 ms on SQLite."""
NOTED_EVERY = timedelta(seconds=5)
"""A quiet installation writes its pulse this often, not each second."""

log = structlog.get_logger(__name__)


class _Lost(Exception):
    """Another sealer was first."""


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    """change | gap | tail | head"""
    seq: int
    message: str


def seal_of(record: Record, *, seq: int, previous: str) -> str:
    content = {
        "id": str(record.pk),
        "at": record.at.astimezone(UTC).isoformat(timespec="microseconds"),
        "actor": record.actor,
        "action": record.action,
        "target": record.target,
        "target_name": record.target_name,
        "cluster_id": str(record.cluster_id or ""),
        "request_id": record.request_id,
        "message": record.message,
        "before": record.before,
        "after": record.after,
    }
    canonical = json.dumps([previous, seq, content], sort_keys=True, separators=(",", ":"))
    return hmac.new(settings.SETPOINT_AUDIT_KEY.encode(), canonical.encode(), sha256).hexdigest()


def seal_waiting() -> int:
    """Seal what waits; how many. Any number of sealers may run: one wins, the others seal nothing."""
    chain = Chain.objects.filter(pk=1).first() or Chain.objects.get_or_create(pk=1)[0]
    at, seq, seal = now(), chain.seq, chain.seal
    waiting = list(Record.objects.unsealed()[:SET])
    if not waiting:
        if chain.checked_at is None or chain.checked_at <= at - NOTED_EVERY:
            Chain.objects.filter(pk=1).update(checked_at=at)
        return 0
    for record in waiting:
        seq += 1
        seal = seal_of(record, seq=seq, previous=seal)
        record.seq, record.seal = seq, seal
    try:
        with transaction.atomic():
            _write(chain, waiting, at)
    except _Lost:
        return 0
    log.info("audit sealed", records=len(waiting), head=f"{seq}:{seal}")
    return len(waiting)


def _write(chain: Chain, sealed: list[Record], at: datetime) -> None:
    """Raises _Lost, which undoes all of it, when another sealer moved the head since `chain` was read."""
    seq, seal = sealed[-1].seq, sealed[-1].seal
    # The claim: only who still finds the head they built upon may write. Its row lock holds until the commit.
    if not Chain.objects.filter(pk=1, seq=chain.seq, seal=chain.seal).update(
        seq=seq, seal=seal, sealed_at=at, checked_at=at
    ):
        raise _Lost
    for record in sealed:
        if not Record.objects.put_seal(record.pk, seq=record.seq or 0, seal=record.seal):
            raise _Lost


def verify(heads: Sequence[str] = ()) -> Iterator[Finding]:
    """Everything that is wrong with the chain, in order; nothing when it is whole.

    `heads` are `seq:seal` texts from the log: each must still be in the chain.
    """
    wanted = {int(number): seal for number, _, seal in (head.partition(":") for head in heads)}
    seen: dict[int, str] = {}
    expected, previous = 1, ""
    for record in Record.objects.sealed().iterator(chunk_size=SET):
        seq = record.seq or 0
        if seq != expected:
            many = f"records {expected} to {seq - 1} are" if seq - expected > 1 else f"record {expected} is"
            yield Finding("gap", expected, f"{many} missing before {record.pk}")
        elif not hmac.compare_digest(seal_of(record, seq=seq, previous=previous), record.seal):
            yield Finding("change", seq, f"record {seq} ({record.pk}) was changed, or moved from its place")
        if seq in wanted:
            seen[seq] = record.seal
        expected, previous = seq + 1, record.seal
    last = expected - 1
    chain = Chain.objects.filter(pk=1).first() or Chain()
    if (chain.seq, chain.seal) != (last, previous):
        yield Finding("tail", last, f"the chain should end at record {chain.seq}, the last one found is {last}")
    for seq, seal in sorted(wanted.items()):
        if seq > last:
            yield Finding("head", seq, f"the log saw record {seq}, the last one found is {last}: the tail was cut")
        elif not hmac.compare_digest(seen.get(seq, ""), seal):
            yield Finding("head", seq, f"the log saw another seal on record {seq}: history was rewritten")
