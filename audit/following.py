"""The sealed record in the order of its seals, read from a cursor: nothing is skipped and nothing comes twice.

Times and ids become visible out of order, for a transaction may commit long after another that began later. Numbers of
the chain do not: a sealer gives the next ones in a transaction that holds the chain's row until it has committed, so a
reader that sees one sees all before it.

A cursor is `<number>:<beginning of its seal>`. A database that was restored numbers other records with the same
numbers; a cursor from before does not fit them, and is refused, instead of leaving out what was numbered since.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from audit.models import Record, Seal
from common.errors import Invalid, WrongState

BEGINNING = "0:"
_SEAL_CHARACTERS = 16
_CURSOR = re.compile(rf"(?:0:|([1-9][0-9]{{0,17}}):([0-9a-f]{{{_SEAL_CHARACTERS}}}))")


class OtherChain(WrongState):
    """The cursor is of a chain that this one does not continue: begin again, and compare."""

    code = "audit-restored"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Records behind a cursor, in the order of their seals."""

    results: Sequence[Record]
    cursor: str
    """Behind the last of them; where the reader's rights or the limit leave none, behind what was looked at."""
    has_more: bool


def cursor_of(numbered: Seal | Record) -> str:
    return f"{numbered.seq}:{numbered.seal[:_SEAL_CHARACTERS]}"


def place(cursor: str) -> int:
    """Return the number that a cursor is behind. Raises Invalid, OtherChain."""
    match = _CURSOR.fullmatch(cursor or BEGINNING)
    if match is None:
        right = "Give the cursor of the answer before as it was, or leave it out to begin with the first record."
        raise Invalid("This is no cursor.", fields={"after": [right]})
    if match[1] is None:
        return 0
    seq = int(match[1])
    if not Seal.objects.filter(seq=seq, seal__startswith=match[2]).exists():
        raise OtherChain(
            f"Record {seq} of this chain is another one, or gone: the database was restored or changed. Begin again "
            "without after, and compare; manage.py verify_audit says what happened."
        )
    return seq


def read(rows: QuerySet[Record], *, after: str, limit: int) -> Stretch:
    """Return at most `limit` of these rows behind a cursor. Raises Invalid, OtherChain."""
    seq = place(after)
    # Read first: what is sealed between the two statements is behind this one, and comes next time.
    head = Seal.objects.order_by("-seq").first()
    if head is None or head.seq <= seq:
        return Stretch((), after or BEGINNING, has_more=False)
    behind = rows.filter(sealed_as__seq__gt=seq, sealed_as__seq__lte=head.seq).order_by("sealed_as__seq")
    records = list(behind.select_related("sealed_as")[: limit + 1])
    if len(records) <= limit:
        return Stretch(records, cursor_of(head), has_more=False)
    return Stretch(records[:limit], cursor_of(records[limit - 1]), has_more=True)
