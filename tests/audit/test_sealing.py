"""The chain finds every kind of tampering by somebody who can write to the database but does not hold the key."""

from __future__ import annotations

import threading
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.db.models import QuerySet

from audit import sealing, tasks
from audit.models import Chain, Record
from audit.services import record

pytestmark = pytest.mark.django_db


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
    with connection.cursor() as cursor:
        cursor.execute(sql, values)


def found(*heads: str) -> list[tuple[str, int]]:
    return [(finding.kind, finding.seq) for finding in sealing.verify(heads)]


def test_a_chain_that_nobody_touched_is_whole() -> None:
    first = sealed(3)
    second = sealed(2)
    assert found(first, second) == []
    assert list(Record.objects.sealed().values_list("seq", flat=True)) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("actor", "bob"),
        ("message", "other"),
        ("action", "plan.reject"),
        ("target", "plan:9"),
        ("after", '{"n": 7}'),
        ("at", "2020-01-01 00:00:00"),
        ("request_id", "x"),
        ("seal", "0" * 64),
    ],
)
def test_a_changed_record_is_found(column: str, value: str) -> None:
    sealed(5)
    tamper(f"UPDATE audit_record SET {column} = %s WHERE seq = 3", value)
    assert ("change", 3) in found()


def test_a_removed_record_is_found() -> None:
    sealed(5)
    tamper("DELETE FROM audit_record WHERE seq = 3")
    assert ("gap", 3) in found()


def test_a_removed_record_is_found_though_the_others_close_ranks() -> None:
    sealed(5)
    tamper("DELETE FROM audit_record WHERE seq = 3")
    for seq in (4, 5):
        tamper("UPDATE audit_record SET seq = %s WHERE seq = %s", seq - 1, seq)
    tamper("UPDATE audit_chain SET seq = 4")
    assert ("change", 3) in found()


def test_records_that_changed_places_are_found() -> None:
    sealed(5)
    for new, old in ((99, 2), (2, 3), (3, 99)):
        tamper("UPDATE audit_record SET seq = %s WHERE seq = %s", new, old)
    kinds = found()
    assert ("change", 2) in kinds
    assert ("change", 3) in kinds


def test_an_inserted_record_is_found() -> None:
    sealed(3)
    forged = Record(actor="x", action="y.z", target="t:1", seq=4, seal="1" * 64)
    QuerySet(Record).bulk_create([forged])
    assert ("change", 4) in found()


def test_a_cut_tail_is_found() -> None:
    sealed(5)
    tamper("DELETE FROM audit_record WHERE seq > 3")
    assert found() == [("tail", 3)]


def test_a_tail_cut_together_with_its_head_is_found_by_a_head_from_the_log() -> None:
    head = sealed(5)
    before = Record.objects.get(seq=3).seal
    tamper("DELETE FROM audit_record WHERE seq > 3")
    tamper("UPDATE audit_chain SET seq = 3, seal = %s", before)
    assert found() == []  # this is why the log's head is kept elsewhere
    assert found(head) == [("head", 5)]


def test_history_sealed_anew_after_a_cut_is_found_by_a_head_from_the_log() -> None:
    head = sealed(5)
    before = Record.objects.get(seq=3).seal
    tamper("DELETE FROM audit_record WHERE seq > 3")
    tamper("UPDATE audit_chain SET seq = 3, seal = %s", before)
    sealed(4)
    assert found() == []
    assert found(head) == [("head", 5)]


def test_another_key_verifies_nothing(settings) -> None:
    sealed(2)
    settings.SETPOINT_AUDIT_KEY = "another"
    assert ("change", 1) in found()


def test_the_command_says_so_and_fails() -> None:
    head, out = sealed(5), StringIO()
    call_command("verify_audit", head=[head], stdout=out)
    assert f"whole: head {head}" in out.getvalue()
    tamper("DELETE FROM audit_record WHERE seq = 2")
    err = StringIO()
    with pytest.raises(CommandError, match="damaged"):
        call_command("verify_audit", stderr=err)
    assert "record 2 is missing" in err.getvalue()


@pytest.mark.parametrize("head", ["", "x", "5", "5:abc", "a:" + "0" * 64])
def test_a_malformed_head_is_refused(head: str) -> None:
    with pytest.raises(CommandError, match="SEQ:SEAL"):
        call_command("verify_audit", head=[head])


def test_a_quiet_chain_notes_its_pulse_every_five_seconds_only(clock, django_assert_num_queries) -> None:
    tasks.seal()
    first = Chain.objects.get().checked_at
    clock.forward(4)
    with django_assert_num_queries(2):
        tasks.seal()
    assert Chain.objects.get().checked_at == first
    clock.forward(1)
    tasks.seal()
    assert Chain.objects.get().checked_at == clock.at


def test_more_than_a_set_is_sealed_in_one_task() -> None:
    Record.objects.bulk_create(Record(actor="a", action="b.c", target=f"t:{n}") for n in range(sealing.SET + 3))
    tasks.seal()
    assert not Record.objects.unsealed().exists()
    assert found() == []


def test_a_sealer_that_read_an_old_head_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    note(3)
    stale = Chain.objects.create(pk=1)
    waiting = list(Record.objects.unsealed())
    for seq, row in enumerate(waiting, 1):
        row.seq, row.seal = seq, "f" * 64
    assert sealing.seal_waiting() == 3
    with pytest.raises(sealing._Lost):
        sealing._write(stale, waiting, stale.checked_at)
    assert found() == []


@pytest.mark.django_db(transaction=True)
def test_of_many_sealers_at_once_each_record_is_sealed_by_one() -> None:
    note(40)
    barrier, done = threading.Barrier(6), []

    def run() -> None:
        barrier.wait()
        for _ in range(5):
            done.append(sealing.seal_waiting())
            note(3)
        connections.close_all()

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while done.append(sealing.seal_waiting()) or done[-1]:
        pass
    assert sum(done) == Record.objects.count() == 40 + 6 * 5 * 3
    assert found() == []
