"""Making, tampering with and verifying chains of audit records."""

from __future__ import annotations

from datetime import datetime

from django.db import connection
from django.db.models import QuerySet

from audit import sealing, tasks
from audit.models import Chain, Record, Seal
from audit.services import record


def note(n: int) -> None:
    for k in range(n):
        record(
            by="ann", action="plan.approve", target=f"plan:{k}", message=f"m{k}", after={"n": k, "f": 1.5, "ö": None}
        )


def sealed(n: int) -> str:
    note(n)
    tasks.seal()
    return str(Chain.objects.get())


def tamper(sql: str, *values: object) -> None:
    """Run SQL with the triggers disabled, which the owner of the tables can do."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            for table in ("audit_record", "audit_seal"):
                cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        cursor.execute(sql, values)


def record_id(seq: int) -> str:
    """Return the id of the record with this number, as the column holds it."""
    pk = Seal.objects.values_list("record_id", flat=True).get(seq=seq)
    return str(pk) if connection.vendor == "postgresql" else pk.hex


def findings(*heads: str) -> list[tuple[str, int]]:
    return [(finding.kind, finding.seq) for finding in sealing.verify(heads)]


def forge(at: datetime | None = None, **fields: object) -> Record:
    row = Record(actor="x", action="plan.approve", target="plan:1", **fields)
    row.at = at or row.at
    QuerySet(Record).bulk_create([row])  # as an INSERT would: no mark is made
    tasks.seal()
    return row


def cut_tail() -> None:
    tamper("DELETE FROM audit_record WHERE id IN (%s, %s)", record_id(4), record_id(5))
    tamper("DELETE FROM audit_seal WHERE seq > 3")


def cut_tail_with_head() -> None:
    cut_tail()
    tamper("UPDATE audit_chain SET seq = 3, seal = %s", Seal.objects.get(seq=3).seal)


def delete() -> None:
    tamper("DELETE FROM audit_record WHERE id = %s", record_id(3))


def delete_with_seal() -> None:
    delete()
    tamper("DELETE FROM audit_seal WHERE seq = 3")
