"""Records are sealed once, in order, and only those with a right mark; a contradicted history is not built on."""

from __future__ import annotations

import socket
import threading
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, connections, transaction
from django.db.models import QuerySet

from audit import macs, sealing, tasks
from audit.models import Chain, Record, Seal
from audit.services import record
from common.clock import now
from tests.audit.chains import cut_tail_with_head, delete_with_seal, findings, forge, note, record_id, sealed, tamper

pytestmark = pytest.mark.django_db


def test_a_chain_that_nobody_touched_is_whole() -> None:
    first = sealed(3)
    second = sealed(2)
    assert findings(first, second) == []
    assert list(Record.objects.sealed().values_list("sealed_as__seq", flat=True)) == [1, 2, 3, 4, 5]


def test_what_is_refused_does_not_keep_others_from_being_sealed(heads_file: Path) -> None:
    sealed(2)
    forged = forge(now() - timedelta(days=10))
    note(2)
    tasks.seal()
    assert Record.objects.filter(sealed_as=None).get() == forged
    refusal = Record.objects.get(action="audit.refuse")
    assert refusal.seq
    assert refusal.target == f"record:{forged.pk}"
    assert [finding.about for finding in sealing.verify()] == [str(forged.pk)]


@pytest.mark.parametrize("ago", [timedelta(days=1), -timedelta(days=1)])
def test_a_time_out_of_all_order_is_refused_though_its_mark_is_right(ago: timedelta, clock) -> None:
    sealed(2)
    at = clock.at
    clock.at -= ago
    note(1)
    clock.at = at
    tasks.seal()
    assert [kind for kind, _ in findings()] == ["refused"]


def test_clocks_of_processes_may_differ(clock) -> None:
    sealed(2)
    for minutes in (-9, 5, -3):
        clock.forward(minutes=minutes)
        note(1)
    clock.forward(minutes=7)
    tasks.seal()
    assert findings() == []
    assert Seal.objects.count() == 5


def test_nothing_is_sealed_on_a_history_that_kept_heads_contradict_until_a_person_accepts_it(heads_file: Path) -> None:
    sealed(5)
    cut_tail_with_head()
    note(1)
    tasks.seal()
    assert Seal.objects.count() == 3
    assert Chain.objects.get().broken
    assert sealing.check_at_start("test")
    call_command("verify_audit", accept="restored last night's backup", stdout=StringIO(), stderr=StringIO())
    tasks.seal()
    assert findings() == []
    assert Chain.objects.get().broken == ""
    assert Record.objects.sealed().filter(action="audit.accept").exists()
    tamper("UPDATE audit_record SET actor = 'bob' WHERE id = %s", record_id(3))
    assert findings(), "only what was accepted is accepted"


def test_an_acceptance_counts_only_with_a_right_mark(heads_file: Path) -> None:
    sealed(3)
    tamper("UPDATE audit_record SET actor = 'bob' WHERE id = %s", record_id(3))
    keys = [finding.key for finding in sealing.verify()]
    QuerySet(Record).bulk_create([Record(actor="x", action="audit.accept", target="x", after={"findings": keys})])
    assert ("change", 3) in findings()


def test_heads_are_kept_in_the_file_and_sent_to_syslog(heads_file: Path, settings) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(30)
        settings.SETPOINT_AUDIT_HEADS_SYSLOG = f"127.0.0.1:{server.getsockname()[1]}"
        head = sealed(2)
        assert head in server.recv(2000).decode()
    assert heads_file.read_text().splitlines() == [head]
    assert heads_file.stat().st_mode & 0o777 == 0o600


def test_a_place_for_heads_that_cannot_be_reached_stops_nothing(settings, tmp_path: Path) -> None:
    settings.SETPOINT_AUDIT_HEADS_FILE = str(tmp_path)  # a folder
    settings.SETPOINT_AUDIT_HEADS_SYSLOG = str(tmp_path / "none")
    sealed(2)
    assert Seal.objects.count() == 2


def test_a_mark_survives_the_database() -> None:
    values = {"a": 1.0, "b": 1e20, "c": 1.5e-7, "d": ["ö", None, True, {"e": -0.0}], "f": 10**20}
    record(by="ann", action="a.b", target="t:1", before=values, after=values)
    assert macs.is_right(Record.objects.get())


def test_records_of_before_are_sealed_as_of_the_first_scheme_and_nothing_is_signed_for_them() -> None:
    """The state after the migration: no mark, the seals that the records had, and a chain that continues."""
    note(2)
    rows, previous = list(Record.objects.order_by("at", "id")), ""
    tamper("UPDATE audit_record SET mac = ''")
    for seq, row in enumerate(rows, 1):
        previous = sealing.seal_of(row, seq=seq, previous=previous, at=None, scheme=Seal.Scheme.FIRST)
        QuerySet(Seal).bulk_create([Seal(seq=seq, record=row, seal=previous, scheme=Seal.Scheme.FIRST)])
    Chain.objects.create(pk=1, seq=2, seal=previous, newest_at=rows[-1].at)
    sealed(2)
    assert findings() == []
    tamper("UPDATE audit_record SET actor = 'bob' WHERE id = %s", record_id(1))
    assert ("change", 1) in findings()


@pytest.mark.full  # triggers are PostgreSQL's
@pytest.mark.parametrize("table", ["audit_record", "audit_seal"])
@pytest.mark.parametrize("verb", ["UPDATE {} SET {} = {}", "DELETE FROM {}"])
def test_postgresql_refuses_to_change_a_record(table: str, verb: str) -> None:
    sealed(2)
    column = "actor" if table == "audit_record" else "seal"
    with pytest.raises(DatabaseError, match="never changed"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(verb.format(table, column, column))


def test_another_key_verifies_nothing(settings) -> None:
    sealed(2)
    settings.SETPOINT_AUDIT_KEY = "another"
    assert ("change", 1) in findings()


def test_the_command_says_so_and_fails() -> None:
    head, out = sealed(5), StringIO()
    call_command("verify_audit", head=[head], stdout=out)
    assert f"whole: head {head}" in out.getvalue()
    delete_with_seal()
    err = StringIO()
    with pytest.raises(CommandError, match="damaged"):
        call_command("verify_audit", stderr=err)
    assert "record 3 is missing" in err.getvalue()


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
    assert findings() == []


def test_a_sealer_that_read_an_old_head_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    note(3)
    stale = Chain.objects.create(pk=1)
    waiting = list(Record.objects.unsealed())
    assert sealing.seal_waiting() == 3
    with pytest.raises(sealing._Lost):
        sealing._write(stale, waiting, stale.checked_at)
    assert findings() == []


def test_a_sealer_that_another_one_overtook_does_not_call_the_record_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another sealer moves the head after this one has read it, and before it reads the last seal."""
    sealed(2)
    note(1)
    waiting = sealing._waiting

    def overtaken(chain: Chain, at: datetime) -> list[Record]:
        waiting_records = waiting(chain, at)
        monkeypatch.undo()
        assert sealing.seal_waiting() == 1
        return waiting_records

    monkeypatch.setattr(sealing, "_waiting", overtaken)

    assert sealing.seal_waiting() == 0

    assert (Chain.objects.get().seq, Chain.objects.get().broken) == (3, "")


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
    while more := sealing.seal_waiting():
        done.append(more)
    assert sum(done) == Record.objects.count() == 40 + 6 * 5 * 3
    assert findings() == []
