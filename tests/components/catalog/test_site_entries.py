"""The site's own catalog entries: one schema with the files, one administrator writes and another classifies."""

from __future__ import annotations

import threading

import pytest
from django.db import connections
from django.urls import reverse

from accounts.models import User
from audit.models import Record
from common.errors import Invalid, NotAllowed, Stale, WrongState
from components.catalog import catalog, site_entries
from components.catalog.effects import CLASSES
from components.models import SiteEntry
from components.release import approved_entry
from tests.components.packing import entry
from tests.factories import TokenClient, UserFactory
from tests.profiles.web.test_pages import browser

REST = "/api/v1/site-entries"
PAGE = "/components/site/"
HARMLESS = """\
blast:
  unknown: live
  install: {class: live, why: Nothing is touched}
  remove: {class: live, why: Nothing is touched}
  changes: [{kind: Deployment, class: live, why: Nothing is touched}]
"""


def text(name: str = "tool", more: str = HARMLESS) -> str:
    return entry(name, "1.0.0", workload=f"Deployment/{name}", more=more)


@pytest.fixture
def author(db) -> User:
    return UserFactory(roles=["admin"])


@pytest.fixture
def other(db) -> User:
    return UserFactory(roles=["admin"])


def stored(author: User, name: str = "tool", more: str = HARMLESS) -> SiteEntry:
    return site_entries.create(text(name, more), by=author)


# ── One catalog ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_an_entry_is_a_component_at_once_and_no_more_when_it_is_deleted(author):
    assert "tool" not in {component.name for component in catalog.all()}
    row = stored(author)
    assert catalog.get("tool").entry == row.sha256
    assert catalog.order(["volcano", "tool"]) == ("tool", "volcano")
    changed = site_entries.update(row, text().replace("title: tool", "title: A tool"), by=author, version=1)
    assert (catalog.get("tool").title, catalog.get("tool").entry) == ("A tool", changed.sha256)
    site_entries.delete(changed, by=author, version=2)
    with pytest.raises(catalog.Unknown):
        catalog.get("tool")


@pytest.mark.django_db(transaction=True)
def test_a_process_with_an_old_catalog_sees_what_another_wrote():
    author = UserFactory(roles=["admin"])
    assert "tool" not in {component.name for component in catalog.all()}

    def store() -> None:
        stored(author)
        connections.close_all()

    thread = threading.Thread(target=store)
    thread.start()
    thread.join(30)
    assert catalog.get("tool").is_untested


def test_what_is_held_stays_one_state_and_a_preparation_reads_anew(author):
    with catalog.held():
        before = catalog.all()
        stored(author)
        assert catalog.all() == before
        with catalog.held(is_fresh=True):
            assert catalog.get("tool")
        assert "tool" in catalog.current().components


def test_a_row_that_was_changed_past_setpoint_is_left_out(author, other):
    row = site_entries.classify(stored(author), by=other, version=1)
    for change in ({"text": text().replace("baseline", "privileged")}, {"classifier": 0}, {"authors": []}):
        before = SiteEntry.objects.filter(pk="tool").values(*change).get()
        SiteEntry.objects.filter(pk="tool").update(**change)
        if "text" in change:  # read when another entry changes, and when a process starts
            stored(author, "another")
        assert "tool" not in catalog.current().components, change
        assert "outside Setpoint" in catalog.current().problems["tool"]
        with pytest.raises(WrongState, match="outside Setpoint"):
            site_entries.update(row, text("tool", ""), by=author, version=2)
        SiteEntry.objects.filter(pk="tool").update(**before)


def test_an_entry_that_fits_no_more_is_left_out_and_takes_nothing_with_it(author, tmp_path):
    stored(author)
    stored(author, "behind", "after: [tool]")
    (tmp_path / "tool.yaml").write_text(text().replace("title: tool", "title: Shipped"))
    with catalog.extended(tmp_path):
        assert (catalog.get("tool").title, catalog.get("tool").entry) == ("Shipped", "")
        assert "Setpoint's own catalog describes tool" in catalog.installed().problems["tool"]
        assert catalog.get("behind")


# ── One schema ────────────────────────────────────────────────────────────────────────────────────────────────────────
SECRET = "{field: {apiVersion: v1, kind: Secret, name: a, path: b, equals: c}}"
REFUSED = {
    "an unknown field": (text() + "hack: 1\n", "line 22: hack: unknown"),
    "a shipped name": (text("cilium"), "Setpoint's own catalog has a component cilium"),
    "a page's name": (text("archives"), "archives is the name of a page"),
    "an anchor": ("name: &a tool\nother: *a\n", "line 1: anchors and aliases"),
    "too deep": ("a: " + "[" * 40 + "]" * 40, "nested deeper than 32"),
    "no mapping": ("- a\n", "must be a mapping"),
    "too long": ("#" * 300_000, "at most 262,144"),
    "a script as a source": (text().replace("https://example.org\"}}", "javascript:alert(1)\"}}"), "address of https"),
    "a script as documentation": (text().replace("https://example.org/docs", "javascript:x"), "address of https"),
    "a namespace that is none": (text().replace(": tool-system\npod", ": A B\npod"), "namespace: must"),
    "a chart elsewhere": (text().replace("chart: tool}", "chart: ../x}"), "chart.chart: must be the name"),
    "what needs what is not there": (text("tool", "requires: [nothing]"), "there is no component 'nothing'"),
    "a circle": (text("tool", "after: [tool]"), "must not name the component itself"),
    "a title without end": (text().replace("title: tool", f"title: {'x' * 81}"), "at most 80"),
    "a look into a Secret": (
        text().replace("readiness: [", f"readiness: [{SECRET}, "),
        "must not be a Secret",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("wrong", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_the_schema_refuses_is_refused_with_field_and_line_and_not_stored(author, wrong, reason):
    with pytest.raises(Invalid) as refusal:
        site_entries.create(wrong, by=author)
    assert reason in str(refusal.value)
    answer = TokenClient(author).post(REST, {"text": wrong})
    assert answer.status_code in (413, 422), answer.json()
    assert browser(author).post(f"{PAGE}new/", {"text": wrong}).status_code == 422
    assert not SiteEntry.objects.exists()


def test_two_entries_cannot_wait_for_each_other(author):
    row = stored(author)
    stored(author, "behind", "after: [tool]")
    with pytest.raises(Invalid, match="wait for one another"):
        site_entries.update(row, text("tool", "after: [behind]"), by=author, version=1)
    with pytest.raises(Invalid, match="this is the entry of 'tool'"):
        site_entries.update(row, text("renamed"), by=author, version=1)
    assert catalog.get("behind").after == ("tool",)


# ── Who may ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_only_an_administrator_of_everything_writes_and_no_token_without_the_right(author):
    row = stored(author)
    service = UserFactory(roles=["admin"], is_service=True)
    callers = [
        TokenClient(UserFactory(roles=["operator", "approver"])),
        TokenClient(UserFactory(roles=["admin@env:staging"])),
        TokenClient(author, scopes=["read", "plan"]),
        TokenClient(service),
    ]
    assert TokenClient(author).patch(f"{REST}/tool", {}).status_code == 428
    for client in callers:
        assert client.post(f"{REST}/tool/actions/classify").status_code == 403
        assert client.post(REST, {"text": text("more")}).status_code == 403
        answer = client.patch(f"{REST}/tool", {"text": text("tool", "")}, headers={"If-Match": '"1"'})
        assert answer.status_code == 403
        assert client.post(f"{REST}/tool/actions/classify", headers={"If-Match": '"1"'}).status_code == 403
        assert client.delete(f"{REST}/tool", headers={"If-Match": '"1"'}).status_code == 403
    page = browser(UserFactory(roles=["operator"]))
    assert page.post(f"{PAGE}new/", {"text": text("more")}).status_code == 403
    assert page.post(f"{PAGE}entries/tool/classify/", {"version": "1"}).status_code == 403
    assert page.post(f"{PAGE}entries/tool/delete/", {"version": "1"}).status_code == 403
    row.refresh_from_db()
    assert (SiteEntry.objects.count(), row.version, row.is_classified) == (1, 1, False)


def test_its_author_does_not_classify_it_in_a_session_or_with_any_token(author, other):
    row = stored(author)
    with pytest.raises(NotAllowed, match="You wrote this text"):
        site_entries.classify(row, by=author, version=1)
    match = {"If-Match": '"1"'}
    for scopes in (["admin"], ["admin", "approve"]):
        client = TokenClient(author, scopes=scopes)
        assert client.post(f"{REST}/tool/actions/classify", headers=match).status_code == 403
    alone = TokenClient(other, scopes=["admin"]).post(f"{REST}/tool/actions/classify", headers=match)
    assert (alone.status_code, "admin and approve" in alone.json()["detail"]) == (403, True)
    assert catalog.get("tool").is_untested

    answer = TokenClient(other, scopes=["admin", "approve"]).post(f"{REST}/tool/actions/classify", headers=match)
    row.refresh_from_db()
    assert (answer.status_code, answer.json()["is_classified"], row.classified_by) == (200, True, str(other))
    assert Record.objects.get(action="site-entry.classify").after["sha256"] == row.sha256


def test_an_entry_that_calls_itself_harmless_is_of_the_strictest_class_until_another_agrees(author, other):
    row = stored(author)
    tool = catalog.get("tool")
    assert tool.is_untested
    assert {tool.effects.unknown, tool.effects.install.worst, tool.effects.remove.worst} == {CLASSES[-1]}
    assert tool.effects.changes == ()
    site_entries.classify(row, by=other, version=1)
    assert catalog.get("tool").effects.install.worst == "live"

    changed = site_entries.update(row, text("tool", HARMLESS + "values: {a: 1}\n"), by=other, version=2)
    assert catalog.get("tool").is_untested, "a new text is untested again"
    with pytest.raises(NotAllowed):
        site_entries.classify(changed, by=other, version=3)
    site_entries.classify(changed, by=author, version=3)  # the classified version's author wrote none of this
    with pytest.raises(WrongState, match="is classified by"):
        site_entries.classify(changed, by=author, version=4)


def test_whoever_writes_on_before_it_is_classified_is_an_author_too(author, other):
    row = site_entries.update(stored(author), text("tool", ""), by=other, version=1)
    for person in (author, other):
        with pytest.raises(NotAllowed, match="You wrote this text"):
            site_entries.classify(row, by=person, version=2)
    assert set(row.authors) == {author.pk, other.pk}


# ── Two at once ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_slower_writer_is_told_and_overwrites_nothing(author, other):
    row = stored(author)
    client = TokenClient(other)
    assert client.patch(f"{REST}/tool", {"text": text("tool", "")}).status_code == 428
    site_entries.update(row, text("tool", "values: {a: 1}"), by=author, version=1)
    assert client.patch(f"{REST}/tool", {"text": text("tool", "")}, headers={"If-Match": '"1"'}).status_code == 412
    page = browser(other).post(f"{PAGE}entries/tool/", {"text": text("tool", ""), "version": "1"})
    assert page.status_code == 412
    for doing in (site_entries.classify, site_entries.delete):
        with pytest.raises(Stale):
            doing(row, by=other, version=1)
    assert catalog.get("tool").values == {"a": 1}


def test_of_two_uploads_of_one_name_the_second_is_refused(author, other, monkeypatch):
    stored(author)
    monkeypatch.setattr(site_entries, "judge", lambda _: catalog.get("volcano"))  # judged before the first was there
    SiteEntry.objects.filter(pk="tool").update(name="volcano")
    with pytest.raises(Invalid, match="has an entry volcano already"):
        site_entries.create(text("volcano"), by=other)


# ── As a file ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_what_is_exported_is_to_the_byte_what_was_imported(author, other):
    raw = ("# a comment, kept\r\n" + text() + "\n\n# ünïcode, and no newline at the end").encode()
    row = site_entries.create(raw, by=author)
    answer = browser(UserFactory(roles=["viewer"])).get(reverse("components:site_entry_file", args=["tool"]))
    assert answer.content == raw
    assert 'filename="tool.yaml"' in answer["Content-Disposition"]
    site_entries.delete(row, by=author, version=1)
    assert site_entries.create(answer.content, by=other).sha256 == row.sha256
    assert TokenClient(other).get(f"{REST}/tool").json()["text"] == raw.decode()


# ── Pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_what_an_entry_says_is_text_on_every_page(author, other):
    evil = "<script>alert(1)</script>"
    own = text().replace("title: tool", f'title: "{evil}"').replace("summary: For tests.", f"summary: '{evil}'")
    site_entries.create(own.replace("None that is known", f"'{evil}'"), by=author)
    client = browser(other)
    for path in (PAGE, f"{PAGE}entries/tool/", "/components/", "/components/tool/", "/components/volcano/"):
        page = client.get(path).content.decode()
        assert evil not in page, path
    assert "&lt;script&gt;" in client.get("/components/tool/").content.decode()


def test_an_untested_entry_is_marked_wherever_it_is_shown_and_its_author_is_told_why_not(author, other):
    stored(author)
    mine, theirs = browser(author), browser(other)
    for path in (PAGE, f"{PAGE}entries/tool/", "/components/", "/components/tool/"):
        assert "Untested" in mine.get(path).content.decode(), path
    assert "You wrote this text" in mine.get(f"{PAGE}entries/tool/").content.decode()
    page = theirs.get(f"{PAGE}entries/tool/").content.decode()
    assert "Classify: these are right" in page
    shown = TokenClient(other).get("/api/v1/components/tool").json()
    assert (shown["is_site_entry"], shown["is_untested"]) == (True, True)
    theirs.post(f"{PAGE}entries/tool/classify/", {"version": "1"})
    assert "Untested" not in theirs.get("/components/tool/").content.decode()
    assert TokenClient(other).get("/api/v1/components/volcano").json()["is_site_entry"] is False


def test_pages_cost_the_same_with_any_number_of_entries(author, django_assert_max_num_queries):
    client = browser(author)
    for number in range(5):
        stored(author, f"tool-{number}")
    client.get(PAGE)
    with django_assert_max_num_queries(9):
        client.get(PAGE)


def test_a_note_of_a_plan_names_an_untested_entry(author, other):
    row = stored(author)
    assert [note.code for note in approved_entry.notes(catalog.get("tool"))] == ["untested-entry"]
    site_entries.classify(row, by=other, version=1)
    assert list(approved_entry.notes(catalog.get("tool"))) == []
