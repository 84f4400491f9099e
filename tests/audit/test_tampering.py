"""Every kind of tampering with the database without the key is found."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models import QuerySet

from audit import tasks
from audit.models import Record, Seal
from common.clock import now
from tests.audit.chains import (
    cut_tail,
    cut_tail_with_head,
    delete,
    delete_with_seal,
    findings,
    forge,
    note,
    record_id,
    sealed,
    tamper,
)

pytestmark = pytest.mark.django_db
Tampering = Callable[[], None]


def _edit(column: str, value: object) -> Tampering:
    def edit() -> None:
        tamper(f"UPDATE audit_record SET {column} = %s WHERE id = %s", value, record_id(3))

    return edit


def _close_ranks() -> None:
    delete_with_seal()
    _renumber((4, 3), (5, 4))
    tamper("UPDATE audit_chain SET seq = 4")


def _renumber(*moves: tuple[int, int]) -> None:
    for old, new in moves:
        tamper("UPDATE audit_seal SET seq = %s WHERE seq = %s", new, old)


def _swap_seals() -> None:
    _renumber((2, 99), (3, 2), (99, 3))


def _swap_records() -> None:
    two, three = record_id(2), record_id(3)
    tamper("UPDATE audit_seal SET record_id = %s WHERE seq = 2", uuid.uuid4().hex)
    tamper("UPDATE audit_seal SET record_id = %s WHERE seq = 3", two)
    tamper("UPDATE audit_seal SET record_id = %s WHERE seq = 2", three)


def _forged_insert() -> None:
    forge()


def _forged_past() -> None:
    forge(now() - timedelta(days=10))


def _forged_with_anothers_mark() -> None:
    forge(mac=Record.objects.sealed()[2].mac)


def _forged_with_bogus_seal() -> None:
    row = forge(mac="0" * 64)
    QuerySet(Seal).bulk_create([Seal(seq=6, record=row, seal="1" * 64, at=now())])
    tamper("UPDATE audit_chain SET seq = 6, seal = %s", "1" * 64)


def _sealed_as_in_the_past() -> None:
    row = forge()
    QuerySet(Seal).bulk_create([Seal(seq=6, record=row, seal="1" * 64, scheme=Seal.Scheme.FIRST)])
    tamper("UPDATE audit_chain SET seq = 6, seal = %s", "1" * 64)


def _cut_tail_and_seal_more() -> None:
    cut_tail_with_head()
    note(4)
    tasks.seal()


def _chain_row() -> None:
    tamper("UPDATE audit_chain SET seq = 4")


def _chain_row_gone() -> None:
    tamper("DELETE FROM audit_chain")
    tasks.seal()


def _wiped() -> None:
    for table in ("audit_record", "audit_seal", "audit_chain"):
        tamper(f"DELETE FROM {table}")


def _wiped_and_begun_again() -> None:
    _wiped()
    note(7)
    tasks.seal()


def _unsealed_and_sealed_again() -> None:
    """The review's: all seals off, every record edited, and the sealer left to sign it."""
    tamper("DELETE FROM audit_seal")
    tamper("DELETE FROM audit_chain")
    tamper("UPDATE audit_record SET actor = %s", "bob")
    tasks.seal()


def _unsealed_one_dropped_and_sealed_again() -> None:
    """Every mark is right: only a head that was kept elsewhere knows that there was another history."""
    tamper("DELETE FROM audit_record WHERE id = %s", record_id(2))
    tamper("DELETE FROM audit_seal")
    tamper("DELETE FROM audit_chain")
    tasks.seal()


TAMPERINGS: dict[str, Tampering] = {
    "actor edited": _edit("actor", "bob"),
    "message edited": _edit("message", "other"),
    "action edited": _edit("action", "plan.reject"),
    "target edited": _edit("target", "plan:9"),
    "content edited": _edit("after", '{"n": 7}'),
    "time edited": _edit("at", "2020-01-01 00:00:00"),
    "request edited": _edit("request_id", "x"),
    "mark edited": _edit("mac", "0" * 64),
    "record deleted": delete,
    "record and seal deleted": delete_with_seal,
    "ranks closed": _close_ranks,
    "seals swapped": _swap_seals,
    "records swapped": _swap_records,
    "renumbered": lambda: _renumber((3, 7)),
    "seal edited": lambda: tamper("UPDATE audit_seal SET seal = %s WHERE seq = 3", "0" * 64),
    "seal's time edited": lambda: tamper("UPDATE audit_seal SET at = %s WHERE seq = 3", "2020-01-01 00:00:00"),
    "seal called old": lambda: tamper("UPDATE audit_seal SET scheme = 1 WHERE seq = 3"),
    "forged insert": _forged_insert,
    "forged insert in the past": _forged_past,
    "forged with another's mark": _forged_with_anothers_mark,
    "forged with a bogus seal": _forged_with_bogus_seal,
    "forged as of the first scheme": _sealed_as_in_the_past,
    "tail cut": cut_tail,
    "tail cut with its head": cut_tail_with_head,
    "tail cut and gone on": _cut_tail_and_seal_more,
    "chain row edited": _chain_row,
    "chain row gone": _chain_row_gone,
    "wiped": _wiped,
    "wiped and begun again": _wiped_and_begun_again,
    "un-sealed, edited and sealed again": _unsealed_and_sealed_again,
    "un-sealed, one dropped and sealed again": _unsealed_one_dropped_and_sealed_again,
}


@pytest.mark.parametrize("tampering", TAMPERINGS.values(), ids=TAMPERINGS)
def test_every_tampering_is_found(tampering: Tampering, heads_file: Path) -> None:
    sealed(5)
    assert findings() == []
    tampering()
    assert findings()
