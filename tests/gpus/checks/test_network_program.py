"""The check of the network as its pod runs it, against servers on loopback; each output goes through the parser."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpus.services.checks.catalog import CHECKS
from gpus.services.checks.parsers import PARSERS
from gpus.services.checks.programs import network as program
from gpus.services.checks.verdicts import Verdict
from tests.controlplane.pki import Authority
from tests.gpus.checks.nameserver import Reply, closes, https, is_ipv6, is_mute, listener, nameserver, reply
from tests.ports import free_port

OWN = "kubernetes.default.svc.corp.example"
SHORT, PATIENT = 0.3, 20.0
"""Seconds for one try: where it has to run out, and where it must not, however slow this machine is."""
RUNS_OUT = ("silent", "garbage")
"""Reasons that are known only once a try's time has run out: garbage may be followed by an answer."""
UNAUTHORIZED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


def good(query: bytes, _number: int) -> bytes:
    return reply(query)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("network")
    (path / "tls.pem").write_text("".join(Authority().server(["127.0.0.1"])))
    text = "# a comment\nsearch setpoint-checks.svc.corp.example svc.corp.example corp.example\nnameserver 127.0.0.1\n"
    (path / "resolv.conf").write_text(text + "nameserver 127.0.0.1\noptions ndots:5\n")
    return path


def run(folder: Path, dns: int, api: int, *targets: str, wait: float = PATIENT, **options: Any) -> tuple[Verdict, dict]:
    """Run the text of the catalog as the pod does; return the parser's verdict and each probe by kind and target."""
    given = {"targets": targets, "resolv_conf": str(folder / "resolv.conf"), "dns_port": dns, "wait": wait} | options
    command = CHECKS["network"].arguments(0)
    command = [sys.executable, *command[1:-1], json.dumps(given)]
    address = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api)} if api else {}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=dict(os.environ) | address, check=False
    )
    assert done.stderr == ""
    verdict = PARSERS["network"](done.stdout)
    assert done.returncode == int(not verdict.is_passed)
    assert verdict.covers >= set(targets)
    return verdict, {(probe["kind"], probe["target"]): probe for probe in json.loads(done.stdout)["probes"]}


def test_all_answered_is_a_pass_with_times(folder):
    with nameserver(good) as dns, listener(https(folder, UNAUTHORIZED)) as api, listener(closes) as service:
        verdict, probes = run(folder, dns, api, "registry.example.com", f"127.0.0.1:{service}")
    assert verdict.is_passed
    assert set(probes) == {
        ("dns", OWN), ("dns", "registry.example.com"), ("tcp", f"127.0.0.1:{api}"), ("https", f"127.0.0.1:{api}"),
        ("tcp", f"127.0.0.1:{service}"),
    }  # fmt: skip
    assert probes["https", f"127.0.0.1:{api}"]["received"] > len(UNAUTHORIZED)
    assert verdict.measures["failed"] == 0
    assert verdict.measures.keys() == {measure.name for measure in CHECKS["network"].measures}
    assert 0 < verdict.measures["dns_median"] <= verdict.measures["dns_slowest"]


def no_such_name(query: bytes, _number: int) -> bytes:
    return reply(query, code=3)


def fails(query: bytes, _number: int) -> bytes:
    return reply(query, code=2)


def wrong_id(query: bytes, _number: int) -> bytes:
    text = reply(query)
    return bytes([text[0] ^ 1]) + text[1:]


def of_another_name(query: bytes, _number: int) -> bytes:
    return reply(query, name=program.question("evil.example", 1)[:-4])


def rubbish(_query: bytes, number: int) -> bytes:
    return b"\xff" * number


def pointing_at_itself(query: bytes, _number: int) -> bytes:
    return query[:2] + struct.pack("!5H", 0x8180, 1, 0, 0, 0) + b"\xc0\x0c" + query[-4:]


def a_query(query: bytes, _number: int) -> bytes:
    return query


def empty(query: bytes, _number: int) -> bytes:
    return query[:2] + struct.pack("!5H", 0x8180, 1, 0, 0, 0) + query[12:]


def cut_off(query: bytes, _number: int) -> bytes:
    return reply(query)[:-3] if not is_ipv6(query) else reply(query)


def silent(_query: bytes, _number: int) -> None:
    return None


def truncated(query: bytes, _number: int) -> bytes:
    return reply(query, flags=0x0200)


def half(query: bytes, _number: int) -> bytes | None:
    """Lose one of the two packets that leave a socket together, as a race in connection tracking does."""
    return None if is_ipv6(query) else reply(query)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        (silent, "silent"), (half, "silent"), (no_such_name, "no-such-name"), (fails, "server-error"),
        (wrong_id, "garbage"), (of_another_name, "garbage"), (rubbish, "garbage"), (pointing_at_itself, "garbage"),
        (a_query, "garbage"), (cut_off, "garbage"), (empty, "no-address"), (truncated, "refused"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)  # fmt: skip
def test_a_name_server_that_does_not_answer_what_was_asked_is_named_with_the_reason(folder, answers: Reply, why):
    with nameserver(answers) as dns, listener(https(folder, UNAUTHORIZED)) as api:
        verdict, probes = run(folder, dns, api, wait=SHORT if why in RUNS_OUT else PATIENT)
    probe = probes["dns", OWN]
    assert not verdict.is_passed
    assert (probe["answered"], sum(probe["failures"].values())) == (0, program.IN_A_ROW)
    assert {why} <= probe["failures"].keys() <= {why, "silent"}  # garbage that comes too late is silence
    assert f"queries for {OWN} at 127.0.0.1" in verdict.summary


def test_a_truncated_answer_is_asked_for_again_over_tcp(folder):
    with nameserver(truncated, over_tcp=good) as dns, listener(https(folder, UNAUTHORIZED)) as api:
        verdict, _ = run(folder, dns, api)
    assert verdict.is_passed


def test_a_packet_that_is_lost_once_is_counted_once(folder):
    def loses_the_fifth(query: bytes, number: int) -> bytes | None:
        return None if number == 9 else reply(query)

    with nameserver(loses_the_fifth) as dns, listener(https(folder, UNAUTHORIZED)) as api:
        verdict, probes = run(folder, dns, api, wait=3.0)
    assert probes["dns", OWN]["failures"] == {"silent": 1}
    assert probes["dns", OWN]["answered"] == program.TRIES - 1
    assert (verdict.is_passed, verdict.measures["failed"]) == (False, 1)
    assert verdict.summary == f"1 of 10 queries for {OWN} at 127.0.0.1: no answer"


def test_an_alias_leads_to_its_address_and_other_records_do_not(folder):
    def alias(query: bytes, _number: int) -> bytes:
        if is_ipv6(query):
            return reply(query)
        target = program.question("real.example", 1)[:-4]
        records = b"\xc0\x0c" + struct.pack("!2HIH", program.CNAME, 1, 30, len(target)) + target
        records += target + struct.pack("!2HIH", program.A, 1, 30, 4) + b"\x0a\0\0\x07"
        return query[:2] + struct.pack("!5H", 0x8180, 1, 2, 0, 0) + query[12:] + records

    def of_a_stranger(query: bytes, _number: int) -> bytes:
        owner = program.question("stranger.example", 1)[:-4]
        record = owner + struct.pack("!2HIH", program.A, 1, 30, 4) + b"\x0a\0\0\x07"
        return query[:2] + struct.pack("!5H", 0x8180, 1, 1, 0, 0) + query[12:] + record

    with nameserver(alias) as dns:
        assert program.ask("127.0.0.1", dns, "www.example.com", PATIENT) == ["10.0.0.7"]
    with nameserver(of_a_stranger) as dns, pytest.raises(program.Failure, match="no-address"):
        program.ask("127.0.0.1", dns, "www.example.com", PATIENT)


@given(data=st.binary(max_size=200), is_near=st.booleans())
def test_no_packet_is_too_strange_to_be_refused(data, is_near):
    query = b"ab" + struct.pack("!5H", 0x0100, 1, 0, 0, 0) + program.question(OWN, program.A)
    head = query[:2] + struct.pack("!5H", 0x8180, 1, 3, 0, 0) + query[12:]
    try:
        program.read_answer(head + data if is_near else data, query)
    except (ValueError, IndexError, struct.error):
        return
    assert is_near


# ── services ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_port_that_is_closed_is_named(folder):
    port = free_port()
    with nameserver(good) as dns, listener(https(folder, UNAUTHORIZED)) as api:
        verdict, probes = run(folder, dns, api, f"127.0.0.1:{port}")
    assert probes["tcp", f"127.0.0.1:{port}"]["failures"] == {"refused": program.IN_A_ROW}
    assert f"connections to 127.0.0.1:{port}: refused" in verdict.summary


def test_a_target_whose_name_does_not_resolve_is_named(folder):
    def only_own(query: bytes, _number: int) -> bytes:
        return reply(query, code=0 if b"kubernetes" in query else 3)

    with nameserver(only_own) as dns, listener(https(folder, UNAUTHORIZED)) as api:
        verdict, probes = run(folder, dns, api, "nfs.example.com:2049")
    assert probes["tcp", "nfs.example.com:2049"]["failures"] == {"no-address": 1}
    assert "nfs.example.com:2049: the name has no address" in verdict.summary


@pytest.mark.parametrize(
    ("answer", "most", "why"),
    [(b"HTTP/1.1 200 OK\r\n\r\n", 4096, "silent"), (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", 1 << 20, "garbage")],
    ids=["large requests vanish", "no HTTP"],
)
def test_an_api_server_that_answers_no_large_request_fails(folder, answer, most, why):
    with nameserver(good) as dns, listener(https(folder, answer, most=most)) as api:
        verdict, probes = run(folder, dns, api, wait=SHORT if why == "silent" else PATIENT)
    assert probes["https", f"127.0.0.1:{api}"]["failures"] == {why: program.EXCHANGES}
    assert not verdict.is_passed


@pytest.mark.parametrize(("serve", "why"), [(is_mute, "silent"), (closes, "closed")], ids=["mute", "closes"])
def test_an_api_server_that_accepts_and_says_nothing_costs_bounded_time(folder, serve, why):
    with nameserver(good) as dns, listener(serve) as api:
        verdict, probes = run(folder, dns, api, wait=SHORT if why == "silent" else PATIENT)
    exchanged = probes["https", f"127.0.0.1:{api}"]
    assert (exchanged["answered"], list(exchanged["failures"])) == (0, [why])
    assert "large requests" in verdict.summary


def test_large_packets_that_vanish_are_told_from_a_server_that_is_away(folder):
    with nameserver(good) as dns, listener(https(folder, UNAUTHORIZED, most=4096)) as api:
        lost, _ = run(folder, dns, api, wait=SHORT)
    with nameserver(good) as dns:
        away, _ = run(folder, dns, free_port())
    assert "MTU" in lost.notes[0]
    assert not any("MTU" in text for text in away.notes)


def test_a_pod_without_any_network_says_what_to_look_at(folder):
    with nameserver(silent) as dns:
        verdict, _ = run(folder, dns, free_port(), wait=SHORT)
    assert "deploy/setpoint-checks.yaml" in verdict.notes[0]


def test_without_name_servers_and_api_server_it_fails_and_says_so(folder, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    verdict, _ = run(folder, 53, 0, resolv_conf=str(folder / "none"))
    assert not verdict.is_passed
    assert any("no name server" in text for text in verdict.notes)
    assert any("no address of the API server" in text for text in verdict.notes)


def test_after_its_time_nothing_more_is_tried():
    calls: list[int] = []
    probe = program.Probe("tcp", "a:1").repeat(lambda: calls.append(1), 10, until=0.0)
    assert (calls, probe.failures) == ([], {"no-time": 1})


def test_all_waits_together_end_before_the_pods_limit():
    assert CHECKS["network"].limit.total_seconds() > program.LONGEST + 3 * program.WAIT


def test_the_kubelet_changes_nothing_in_the_program():
    """`$(NAME)` in a container's command is replaced; Linux takes 128 KiB as one argument."""
    text = CHECKS["network"].arguments(0)[4]
    assert "$(" not in text
    assert len(text.encode()) < 64 * 1024
