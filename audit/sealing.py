"""The chain over audit records, so that write access to the database is not enough to rewrite history unseen.

Each record carries the mark of the process that wrote it (audit.macs). The sealer numbers what carries a right one and
adds a seal, a row of its own: HMAC-SHA256, with a key that is not in the database, over the previous seal, the number,
the mark and the time. A change breaks the mark, a removal or a reordering breaks the numbers or the next seal. What has
no right mark, or a time out of all order, is refused: it stays unsealed and is told of. A cut tail leaves a shorter
chain that is whole in itself, and one that was taken off and sealed again another one: heads that are kept elsewhere
contradict both (audit.heads), and then nothing is sealed until an administrator has looked (`verify_audit --accept`).

What is not sealed yet, about a second's worth, can be deleted unseen, but neither changed nor added.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import structlog
from django.conf import settings
from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import Subquery

from audit import database_roles, heads, macs
from audit import services as audit
from audit.models import Chain, Record, Refusal, Seal
from common.clock import now

SET = 500
"""Records of one sealing: one transaction of some 50 ms on SQLite."""
NOTED_EVERY = timedelta(seconds=5)
"""A quiet installation writes its pulse this often, not each second."""
SKEW = timedelta(minutes=10)
"""How far the clocks of processes may differ, and how long a transaction may take: beyond that a time is no mistake."""
LOOK_BACK_EVERY = timedelta(minutes=10)
"""How often all history is searched for records that were put into its past."""
ACCEPT = "audit.accept"

log = structlog.get_logger(__name__)


class _Lost(Exception):
    """Another sealer was first."""


@dataclass(frozen=True, slots=True)
class ChainFinding:
    kind: str
    """change | gap | tail | head | refused"""
    seq: int
    message: str
    about: str = ""
    """What exactly, so that this finding and no other is accepted."""

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.seq}:{self.about}"


# ── Seals ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def seal_of(record: Record, *, seq: int, previous: str, at: datetime | None, scheme: int = Seal.Scheme.MARKED) -> str:
    if scheme == Seal.Scheme.FIRST:
        sealed_content = macs.canonical_first([previous, seq, macs.content(record)])
    else:
        sealed_content = macs.canonical(
            [scheme, previous, seq, record.mac, at.astimezone(UTC).isoformat() if at else ""]
        )
    return hmac.new(settings.SETPOINT_AUDIT_KEY.encode(), sealed_content.encode(), sha256).hexdigest()


def seal_waiting() -> int:
    """Seal what waits; how many were looked at. Any number of sealers may run: one wins, the others seal nothing."""
    chain = Chain.objects.filter(pk=1).first() or Chain.objects.get_or_create(pk=1)[0]
    at = now()
    is_due = chain.checked_at is None or chain.checked_at <= at - NOTED_EVERY
    waiting = _waiting(chain, at)
    if not waiting:
        if is_due:
            Chain.objects.filter(pk=1).update(checked_at=at, broken=reason_not_to_seal(chain)[:300])
        return 0
    if why := reason_not_to_seal(chain):
        if is_due or chain.broken != why[:300]:
            log.critical("audit record is damaged: nothing is sealed", why=why)
            Chain.objects.filter(pk=1).update(checked_at=at, broken=why[:300])
        return 0
    good, refused = _judged(waiting, chain.newest_at, at)
    try:
        with transaction.atomic():
            head = _write(chain, good, at)
            _refuse(refused)
    except (_Lost, IntegrityError):
        return 0
    if good:
        heads.ship(*head, records=len(good))
    return len(waiting)


def reason_not_to_seal(chain: Chain | None = None) -> str:
    """Return the reason not to extend the chain as it is; empty: none. A few queries, at any length of the chain."""
    chain = chain or Chain.objects.filter(pk=1).first() or Chain()
    last = Seal.objects.order_by("-seq").first()
    if last is not None and (chain.seq, chain.seal) != (last.seq, last.seal):
        chain, last = _ends()
    findings = []
    if last is None and chain.seq:
        findings.append(ChainFinding("tail", 0, "all seals are gone", str(chain)))
    elif last is not None and (chain.seq, chain.seal) != (last.seq, last.seal):
        message = f"the chain should end at record {chain.seq}, the last one found is {last.seq}"
        findings.append(ChainFinding("tail", last.seq, message, f"{chain}|{last}"))
    findings += [_of_head(head, why) for head, why in heads.contradicted(heads.kept(last=heads.LAST))]
    if not findings:
        return ""
    known = accepted()
    return next((finding.message for finding in findings if finding.key not in known), "")


def _ends() -> tuple[Chain, Seal | None]:
    """Read the chain's row and the last seal in one statement: between two, another sealer may have moved both."""
    chains = Chain.objects.filter(pk=1)
    ends = {"told_seq": Subquery(chains.values("seq")), "told_seal": Subquery(chains.values("seal"))}
    last = Seal.objects.annotate(**ends).order_by("-seq").first()
    if last is None or last.told_seq is None:
        return chains.first() or Chain(), last
    return Chain(seq=last.told_seq, seal=last.told_seal), last


def check_at_start(process: str) -> str:
    """Say loudly in the log of a starting process what the kept heads contradict. Never keeps it from starting."""
    try:
        why = reason_not_to_seal()
        if database_roles.powers():
            log.warning(
                "this process's database role may change audit records", process=process, see="docs/operating.md"
            )
        if why:
            log.critical("audit record is damaged", process=process, why=why)
            Chain.objects.filter(pk=1).update(broken=why[:300])
    except DatabaseError as error:  # not there, or not migrated yet: that is told of elsewhere
        log.warning("audit record not checked", process=process, error=str(error))
        return ""
    return why


def _waiting(chain: Chain, at: datetime) -> list[Record]:
    """Mostly of the last minutes; now and then of all history."""
    if chain.newest_at is None or _Looked.is_due(at):
        return list(Record.objects.unsealed()[:SET])
    return list(Record.objects.unsealed(since=chain.newest_at - 2 * SKEW)[:SET])


class _Looked:
    """Time at which this process last searched all history."""

    at: datetime | None = None

    @classmethod
    def is_due(cls, at: datetime) -> bool:
        if cls.at is not None and timedelta(0) <= at - cls.at < LOOK_BACK_EVERY:
            return False
        cls.at = at
        return True


def _judged(waiting: Sequence[Record], newest: datetime | None, at: datetime) -> tuple[list[Record], dict[Record, str]]:
    good: list[Record] = []
    refused: dict[Record, str] = {}
    for record in waiting:
        if why := _wrong(record, newest, at):
            refused[record] = why
            continue
        good.append(record)
        newest = record.at if newest is None else max(newest, record.at)
    return good, refused


def _wrong(record: Record, newest: datetime | None, at: datetime) -> str:
    if not record.mac:
        return "it carries no mark of a process: it was put into the table, or written before records had marks"
    if not macs.is_right(record):
        return "its mark is wrong: it was put into the table, or changed before it was sealed"
    if record.at > at + SKEW:
        return f"its time is {record.at:%Y-%m-%d %H:%M:%S} UTC, which is still to come"
    if newest is not None and record.at < newest - SKEW:
        return f"its time runs backwards: {record.at:%Y-%m-%d %H:%M:%S} UTC, after {newest:%Y-%m-%d %H:%M:%S}"
    return ""


def _write(chain: Chain, good: Sequence[Record], at: datetime) -> tuple[int, str]:
    """Raises _Lost, which undoes all of it, when another sealer moved the head since `chain` was read."""
    seq, seal, rows = chain.seq, chain.seal, []
    for record in good:
        seq += 1
        seal = seal_of(record, seq=seq, previous=seal, at=at)
        rows.append(Seal(seq=seq, record=record, seal=seal, at=at))
    newest = max([record.at for record in good] + ([chain.newest_at] if chain.newest_at else []), default=None)
    # The claim: only a process that still finds the head it built upon may write. Its row lock holds until the commit.
    claimed = Chain.objects.filter(pk=1, seq=chain.seq, seal=chain.seal)
    if not claimed.update(seq=seq, seal=seal, sealed_at=at, checked_at=at, newest_at=newest, broken=""):
        raise _Lost
    Seal.objects.bulk_create(rows)
    return seq, seal


def _refuse(refused: dict[Record, str]) -> None:
    """Note the refusals; the records stay unsealed. One audit record reports them all, and reaches administrators as
    any other."""
    if not refused:
        return
    Refusal.objects.bulk_create(Refusal(record=record, why=why[:200]) for record, why in refused.items())
    first, why = next(iter(refused.items()))
    log.critical("audit records refused", count=len(refused), first=str(first.pk), why=why)
    audit.record(
        by="audit sealer",
        action="audit.refuse",
        target=f"record:{first.pk}",
        target_name=f"{len(refused)} audit record{'s' if len(refused) > 1 else ''}",
        message=f"Not sealed: {why}. manage.py verify_audit names each.",
        after={"count": len(refused), "first": str(first.pk)},
    )


# ── Verifying ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def verify(given: Sequence[str] = ()) -> Iterator[ChainFinding]:
    """Everything that is wrong with the chain and was not accepted; nothing when it is whole.

    `given` are `seq:seal` texts kept elsewhere; those of the file are read besides.
    """
    known = accepted()
    for finding in _chain_findings(given):
        if finding.key not in known:
            yield finding


def _chain_findings(given: Sequence[str]) -> Iterator[ChainFinding]:
    last = Seal(seq=0)
    rows: list[Seal] = []
    for row in Seal.objects.order_by("seq").iterator(chunk_size=SET):
        rows.append(row)
        if len(rows) == SET:
            yield from _of_set(rows, last)
            last, rows = rows[-1], []
    if rows:
        yield from _of_set(rows, last)
        last = rows[-1]
    chain = Chain.objects.filter(pk=1).first() or Chain()
    if (chain.seq, chain.seal) != (last.seq, last.seal):
        message = f"the chain should end at record {chain.seq}, the last one found is {last.seq}"
        yield ChainFinding("tail", last.seq, message, f"{chain}|{last}")
    yield from (_of_head(head, why) for head, why in heads.contradicted([*heads.kept(), *given]))
    for record in Record.objects.filter(sealed_as=None).select_related("refused_as").order_by("at", "id").iterator():
        if why := _why_refused(record):
            yield ChainFinding("refused", 0, f"record {record.pk} is not sealed: {why}", str(record.pk))


def _of_set(rows: Sequence[Seal], before: Seal) -> Iterator[ChainFinding]:
    """Each is held against the seal before it as it is, so that one that was changed is one finding, not all after."""
    records = Record.objects.in_bulk([row.record_id for row in rows])
    for row in rows:
        if row.seq != before.seq + 1:
            first, behind = before.seq + 1, row.seq - 1
            many = f"record {first} is" if first == behind else f"records {first} to {behind} are"
            yield ChainFinding("gap", first, f"{many} missing before record {row.seq}", row.seal)
        elif why := _wrong_seal(row, records.get(row.record_id), before):
            yield ChainFinding("change", row.seq, f"record {row.seq} ({row.record_id}) {why}", row.seal)
        before = row


def _wrong_seal(row: Seal, record: Record | None, before: Seal) -> str:
    if record is None:
        return "was deleted"
    if row.scheme < before.scheme and before.seq:
        return "is sealed as it was done in the past"
    if row.scheme == Seal.Scheme.MARKED and not macs.is_right(record):
        return "was changed"
    right = seal_of(record, seq=row.seq, previous=before.seal, at=row.at, scheme=row.scheme)
    return "" if hmac.compare_digest(right, row.seal) else "was changed, or moved from its place"


def _why_refused(record: Record) -> str:
    """Return the finding about an unsealed record; empty for one with a right mark, which only waits."""
    if refusal := getattr(record, "refused_as", None):
        return str(refusal.why)
    return "" if record.mac and macs.is_right(record) else _wrong(record, None, now())


def _of_head(head: str, why: str) -> ChainFinding:
    return ChainFinding("head", int(head.partition(":")[0]), why, head)


def accepted() -> frozenset[str]:
    """Keys of findings that a person has looked at. A record of it counts only with the mark of a process of ours."""
    rows = Record.objects.filter(action=ACCEPT)
    return frozenset(key for row in rows if macs.is_right(row) for key in (row.after or {}).get("findings", ()))


def accept(findings: Sequence[ChainFinding], *, why: str, by: str) -> None:
    """Continue sealing in spite of these findings; the audit record names the actor, the reason and the findings."""
    keys = [finding.key for finding in findings]
    with transaction.atomic():
        audit.record(by=by, action=ACCEPT, target="audit:chain", message=why, after={"findings": keys})
        last = Seal.objects.order_by("-seq").first() or Seal(seq=0)
        Chain.objects.filter(pk=1).update(seq=last.seq, seal=last.seal, broken="")
