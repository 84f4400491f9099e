"""Repositories that give a chart, and all that lie, redirect, pour, or are not there."""

from __future__ import annotations

import time

import pytest

from components.catalog.entry import ChartReference
from components.charts import archives, store
from components.charts import repositories as chart_repositories
from components.models import Repository
from tests.components.chart_server import AUTHORITY, ChartServer
from tests.components.charts.fetching import BASIC, http, known, refusal
from tests.components.packing import packed, tiny
from tests.controlplane.pki import Authority
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def loopback(settings):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8", "::1/128"]


def test_who_set_a_repository_up_is_an_author_of_what_it_sends(server):
    """A mirror sends what its administrator likes, where no digest is known."""
    first, second = UserFactory(roles=["admin"]), UserFactory(roles=["admin"])
    server.index(tiny())
    chart = ChartReference("http", server.url("/charts"), "tiny")
    row = chart_repositories.create(by=first, name="ours", url=chart.url, ca=AUTHORITY.pem)
    chart_repositories.update(row, by=second, version=row.version, hosts=["a.example"])

    assert store.fetch(chart, "1.2.3").authors == sorted([first.pk, second.pk])


# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_chart_is_fetched_once_and_then_stored(server):
    server.index(tiny())
    chart = http(server)
    archive = store.fetch(chart, "1.2.3")
    again = store.fetch(chart, "v1.2.3")
    assert again == archive
    assert archives.content(archive.pk) == tiny()
    assert archive.origin == server.url("/charts/tiny")
    assert [path for path, _ in server.asked] == ["/charts/index.yaml", "/charts/tiny-1.2.3.tgz"]


def test_an_index_in_yaml_is_read_too_and_tells_the_versions(server):
    server.say("/charts/index.yaml", "entries:\n  tiny:\n  - version: 1.2.3\n  - version: 1.2.2\n  other: []\n")
    assert store.versions(http(server)) == ["1.2.3", "1.2.2"]


def test_an_uploaded_archive_goes_before_the_repository(server):
    archive = archives.store(tiny(), origin="uploaded", by="admin")
    assert store.fetch(http(server), "1.2.3") == archive
    assert server.asked == []


def test_an_archive_of_another_repository_does_not_stand_in(server):
    archives.store(tiny(a="a: 1"), origin="https://other.example/tiny")
    server.index(tiny())
    assert bytes(store.fetch(http(server), "1.2.3").content) == tiny()


def test_only_the_approved_archive_will_do(server):
    server.index(tiny())
    error = refusal(http(server), error=archives.BadArchive, sha256="0" * 64)
    assert "another archive than the one that was approved" in str(error)


def test_credentials_go_to_the_repository(server):
    server.index(tiny())
    server.wanted = dict.fromkeys(("/charts/index.yaml", "/charts/tiny-1.2.3.tgz"), BASIC)
    assert store.fetch(http(server, username="robot", password="hunter2"), "1.2.3")


def test_a_password_that_is_not_accepted_is_said_and_not_shown(server):
    server.index(tiny())
    server.wanted = {"/charts/index.yaml": BASIC}
    error = refusal(http(server, username="robot", password="wrong-one"))
    assert "are not accepted" in str(error)
    assert "wrong-one" not in str(error)


def test_a_missing_password_is_said(server):
    server.wanted = {"/charts/index.yaml": BASIC}
    assert "they may be needed" in str(refusal(http(server)))


def test_a_redirect_to_a_named_host_is_followed_without_the_password(server, elsewhere):
    server.index(tiny())
    server.say("/charts/tiny-1.2.3.tgz", status=302, Location=elsewhere.url("/files/a.tgz", "localhost"))
    elsewhere.say("/files/a.tgz", tiny())
    chart = http(server, f"localhost:{elsewhere.port}", username="robot", password="hunter2")
    archive = store.fetch(chart, "1.2.3")
    assert archive.origin == chart.reference
    assert archive.fetched_from == elsewhere.url("/files/a.tgz", "localhost"), "where it came from in the end"
    assert server.asked[-1] == ("/charts/tiny-1.2.3.tgz", BASIC)
    assert elsewhere.asked == [("/files/a.tgz", "")]


@pytest.mark.parametrize("how", ["redirect", "index"])
def test_a_host_that_nobody_named_is_not_asked(server, elsewhere, how):
    server.index(tiny(), url="tiny-1.2.3.tgz" if how == "redirect" else elsewhere.url("/a.tgz"))
    server.say("/charts/tiny-1.2.3.tgz", status=302, Location=elsewhere.url("/a.tgz"))
    elsewhere.say("/a.tgz", tiny())
    error = refusal(http(server, "localhost"))
    assert f"sends us to 127.0.0.1:{elsewhere.port}, a host that it does not name" in str(error)
    assert elsewhere.asked == []


def test_a_redirect_to_plain_http_is_not_followed(server):
    server.index(tiny())
    server.say("/charts/tiny-1.2.3.tgz", status=301, Location=f"http://127.0.0.1:{server.port}/a.tgz")
    assert "a host that it does not name" in str(refusal(http(server)))


@pytest.mark.parametrize("location", ["https://[", "", "//", "ftp://x/", "https://user@/"])
def test_a_redirect_to_nowhere_is_refused(server, location):
    server.index(tiny())
    server.say("/charts/tiny-1.2.3.tgz", status=302, Location=location)
    refusal(http(server))


def test_a_circle_of_redirects_ends(server):
    server.say("/charts/index.yaml", status=302, Location="/charts/index.yaml")
    assert "redirects without end" in str(refusal(http(server)))
    assert len(server.asked) == 6


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("a: [", "index.yaml cannot be read: line"),
        ("{", "index.yaml cannot be read"),
        ("[]", "is not the index"),
        ("entries: []", "is not the index"),
        ("entries: {}", "has no chart 'tiny'"),
        ("entries: {tiny: []}", "has no chart 'tiny'"),
        ("entries: {tiny: [5, {version: 1.0.0}]}", "has no tiny 1.2.3; its index begins with 1.0.0"),
        ("entries: {tiny: [{version: 1.2.3}]}", "names no address"),
        ("entries: {tiny: [{version: 1.2.3, urls: {}}]}", "names no address"),
        ("entries: {tiny: [{version: 1.2.3, urls: [5]}]}", "names no address"),
        ("entries: {tiny: [{version: 1.2.3, urls: [tiny-1.2.3.tgz], digest: x}]}", "is no SHA-256"),
        ("[" * 1000, "index.yaml cannot be read"),
        (b"\xff\xfe\xff", "index.yaml cannot be read"),
    ],
)
def test_an_index_that_is_none_is_refused(server, body, words):
    server.index(tiny())
    server.say("/charts/index.yaml", body)
    assert words in str(refusal(http(server)))


def test_an_archive_with_another_digest_than_the_index_tells_is_refused(server):
    server.index(tiny(), digest="sha256:" + "1" * 64)
    assert "not 1111" in str(refusal(http(server)))


def test_an_archive_that_is_another_chart_is_refused(server):
    server.index(packed({"Chart.yaml": "apiVersion: v2\nname: evil\nversion: 1.2.3\n"}))
    assert list(refusal(http(server), error=archives.BadArchive).fields) == ["Chart.yaml: name"]


def test_an_index_and_an_archive_that_pour_are_cut_off(server, monkeypatch):
    server.index(tiny())
    server.say("/charts/tiny-1.2.3.tgz", bytes(archives.MAX_PACKED + 1))
    assert "longer than 10,485,760 bytes" in str(refusal(http(server)))
    monkeypatch.setattr("components.charts.fetching.MAX_INDEX", 100)
    server.say("/charts/index.yaml", bytes(101))
    assert "longer than 100 bytes" in str(refusal(ChartReference("http", server.url("/charts"), "tiny")))


@pytest.mark.parametrize(("status", "is_final"), [(404, True), (400, True), (429, False), (500, False), (503, False)])
def test_an_error_says_whether_trying_again_can_help(server, status, is_final):
    server.say("/charts/index.yaml", status=status)
    error = refusal(http(server))
    assert (error.is_final, str(status) in str(error)) == (is_final, True)


def test_a_repository_that_is_not_there_is_said(settings):
    chart = ChartReference("http", "https://127.0.0.1:1/charts", "tiny")
    error = refusal(chart)
    assert not error.is_final
    assert "127.0.0.1" in str(error)


def test_a_repository_with_a_wrong_certificate_is_refused(elsewhere):
    stranger = ChartServer(Authority("stranger"))
    other_name = ChartServer(names=("charts.example",))
    try:
        for wrong in (stranger, other_name):
            wrong.index(tiny())
            error = refusal(http(wrong))
            assert error.is_final
            assert "certificate is not accepted" in str(error)
            assert wrong.asked == []
    finally:
        stranger.close()
        other_name.close()


def test_a_repository_on_a_forbidden_address_is_refused(server, settings):
    settings.SETPOINT_ALLOW_NETWORKS = []
    assert "loopback" in str(refusal(http(server)))
    assert "metadata" in str(refusal(ChartReference("http", "https://169.254.169.254/charts", "tiny")))
    assert server.asked == []


def test_a_ca_that_is_none_is_refused(server):
    assert "certificates cannot be used" in str(refusal(http(server, ca="-----BEGIN CERTIFICATE-----\nx\n")))


def test_plain_http_is_refused(server):
    assert "is not https" in str(refusal(ChartReference("http", f"http://127.0.0.1:{server.port}/charts", "tiny")))


def test_the_whole_has_a_deadline(server, monkeypatch):
    monkeypatch.setattr(store, "SECONDS", -1.0)
    server.index(tiny())
    began = time.monotonic()
    assert not refusal(http(server)).is_final
    assert time.monotonic() - began < 5


# ── What the administrator set up ─────────────────────────────────────────────────────────────────────────────────────
def test_a_mirror_is_asked_in_the_repositorys_place(server):
    server.index(tiny())
    chart = ChartReference("http", "https://charts.example/stable", "tiny")
    known(chart, url=server.url("/charts"), stands_for="https://charts.example/stable")
    archive = store.fetch(chart, "1.2.3")
    assert archive.origin == chart.reference  # a plan knows it by the catalog's name


def test_a_mirror_trusts_only_its_own_hosts(server, elsewhere):
    server.index(tiny(), url=elsewhere.url("/a.tgz"))
    elsewhere.say("/a.tgz", tiny())
    chart = ChartReference("http", "https://charts.example/stable", "tiny", (f"127.0.0.1:{elsewhere.port}",))
    row = known(chart, url=server.url("/charts"), stands_for=chart.url)
    refusal(chart)
    Repository.objects.filter(pk=row.pk).update(hosts=[f"127.0.0.1:{elsewhere.port}"])
    assert store.fetch(chart, "1.2.3")


def test_a_repository_that_is_not_enabled_is_never_asked(server):
    server.index(tiny())
    assert "is not enabled" in str(refusal(http(server, is_enabled=False)))
    assert server.asked == []


def test_a_password_whose_key_is_gone_is_said(server):
    chart = http(server, username="robot", password="hunter2")
    Repository.objects.update(password_key="0" * 16)
    assert "cannot be read" in str(refusal(chart))
