"""The context, the texts and the links of the pages."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from profiles.models import Profile, Revision
from tests.profiles.services.test_profiles import OTHER, SOURCE, made, published


def browser(user) -> Client:
    client = Client()
    client.force_login(user)
    return client


def at(name: str, *args: object) -> str:
    return reverse(f"profiles:{name}", args=args)


def test_pages_ask_who_is_there(olga):
    revision = published(olga)

    for path in (
        at("profiles"),
        at("profile", "base"),
        at("profile_edit", "base"),
        at("profile_new"),
        at("revision", "base", revision.number),
    ):
        answer = Client().get(path)
        assert (answer.status_code, path in answer["Location"]) == (302, True), path


def cost(client: Client, path: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        client.get(path)
    return len(queries)


def test_the_list_finds_by_name_and_description(olga):
    for n in range(4):
        published(olga, f"p{n}", f"description: number {n}\nlabels: {{a: '{n}'}}\n")
    client = browser(olga)

    page = client.get(at("profiles")).context["page_obj"]
    assert [(p.name, p.newest_number, p.revision_count) for p in page] == [(f"p{n}", 1, 1) for n in range(4)]
    for query in ("p3", "NUMBER 3"):
        response = client.get(at("profiles"), {"q": query})
        assert [p.name for p in response.context["page_obj"]] == ["p3"]
        assert at("profile", "p2") not in response.content.decode()


def test_a_page_costs_the_same_however_much_there_is(olga):
    published(olga)
    client = browser(olga)
    paths = [at("profiles"), at("profile", "base"), at("revision", "base", 1)]
    cost(client, paths[0])  # the first page of a session writes down that there is one
    before = [cost(client, path) for path in paths]

    for n in range(5):
        published(olga, f"p{n}", f"labels: {{a: '{n}'}}\n")
        published(olga, source=f"settings: {{vm.swappiness: {n}}}\nlabels: {{a: b}}\n")

    assert [cost(client, path) for path in paths] == before
    assert max(before) <= 15, "session, person, roles, the frame's counts, and the page's own few"


def test_a_profile_shows_its_settings_by_class_with_why_and_where_from(olga):
    published(olga, source="settings: {vm.swappiness: {value: 10, why: mine}}\n")
    published(olga, "top", "extends: base\nsettings: {hugepages-2Mi: 8, vm.dirty_ratio: 40}\n")

    context = browser(olga).get(at("profile", "top")).context

    assert [(g.apply_class, [r.wanted.key for r in g.rows]) for g in context["groups"]] == [
        ("kubelet-restart", ["hugepages-2Mi"]),
        ("live", ["vm.dirty_ratio", "vm.swappiness"]),
    ]
    inherited = context["groups"][1].rows[1]
    assert (inherited.is_inherited, inherited.wanted.origin, inherited.why) == (True, "base r1", "mine")
    own = context["groups"][1].rows[0]
    assert own.why == own.info.effect, "without a reason of its own the catalog speaks"
    shown = browser(olga).get(at("profile", "top")).content.decode()
    assert "base r1" in shown
    assert "Taken from the memory other pods can have" in shown, "the risk is on the page"
    assert (context["draft"], context["may_publish"], context["why_not_publish"]) == (None, False, "There is no draft.")


def test_a_viewer_sees_everything_and_is_told_why_nothing_works(olga, vera):
    made(olga)
    client = browser(vera)

    context = client.get(at("profile", "base")).context
    assert (context["may_edit"], context["may_publish"]) == (False, False)
    assert "operator" in context["why_not_publish"]
    assert client.get(at("profile_edit", "base")).status_code == 403
    assert client.post(at("profile_publish", "base"), {"version": 1}).status_code == 403
    assert client.post(at("profile_discard", "base"), {"version": 1}).status_code == 403
    assert (Profile.objects.get().draft, Revision.objects.count()) == (SOURCE, 0)


def test_creating_leads_to_the_profile(olga):
    answer = browser(olga).post(at("profile_new"), {"name": "base", "source": SOURCE.replace("\n", "\r\n")})

    assert answer.status_code == 302
    assert answer["Location"] == at("profile", "base")
    assert Profile.objects.get().draft == SOURCE, "a browser's line ends are not the profile's"


def test_problems_stand_beside_their_lines_and_nothing_typed_is_lost(olga):
    made(olga)
    source = "settings:\n  vm.swappiness: 999\n  net.core.rmem_max: 512Mi\n"
    client = browser(olga)

    answer = client.post(at("profile_edit", "base"), {"source": source, "version": 1, "intent": "save"})

    assert answer.status_code == 422
    judged = answer.context["judged"]
    assert [(note.line, text) for note, text in judged.problems_in_text] == [(2, "vm.swappiness: 999")]
    assert "<code>vm.swappiness: 999</code>" in answer.content.decode(), "the line itself is shown"
    assert answer.context["form"]["source"].value() == source
    assert "999 is out of range: 0 to 200" in answer.content.decode()
    assert Profile.objects.get().draft == SOURCE

    mended = client.post(
        at("profile_edit", "base"), {"source": source.replace("999", "9"), "version": 1, "intent": "check"}
    )
    assert mended.status_code == 200
    assert mended.context["judged"].is_valid
    assert [(n.code, text) for n, text in mended.context["judged"].warnings_in_text] == [
        ("platform", "net.core.rmem_max: 512Mi")
    ]
    assert Profile.objects.get().draft == SOURCE, "looking keeps nothing"


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"source": "a: b"},
        {"version": 1},
        {"source": "x", "version": "y"},
        {"source": "\x01", "version": 1},
        {"source": "a: &a [*a]", "version": 1},
        {"source": SOURCE, "version": 10**20},
        {"source": "x" * 300_000, "version": 1},
    ],
)
def test_rubbish_in_the_editor_comes_back_with_what_is_wrong(olga, form):
    made(olga)

    answer = browser(olga).post(at("profile_edit", "base"), form)

    assert answer.status_code == 422
    assert answer.context["form"].errors or answer.context["judged"].problems
    assert Profile.objects.get().version == 1


def test_the_slower_editor_keeps_the_text_and_is_told(olga, omar):
    made(olga)
    browser(omar).post(at("profile_edit", "base"), {"source": OTHER, "version": 1})

    answer = browser(olga).post(at("profile_edit", "base"), {"source": "labels: {a: b}\n", "version": 1})

    assert answer.status_code == 412
    assert "Your input is kept" in str(answer.context["form"].non_field_errors())
    assert answer.context["form"]["source"].value() == "labels: {a: b}\n"
    assert Profile.objects.get().draft == OTHER

    again = {"source": "labels: {a: b}\n", "version": answer.context["form"]["version"].value()}
    assert browser(olga).post(at("profile_edit", "base"), again).status_code == 302
    assert Profile.objects.get().draft_authors == [omar.pk, olga.pk]


def test_publishing_leads_to_the_revision(olga):
    made(olga)
    client = browser(olga)
    context = client.get(at("profile", "base")).context
    assert (context["may_publish"], context["publish_form"]["version"].value()) == (True, 1)

    answer = client.post(at("profile_publish", "base"), {"message": "first", "version": 1})

    assert answer["Location"] == at("revision", "base", 1)
    page = client.get(answer["Location"]).context
    assert (page["revision"].message, page["is_latest"], page["against"]) == ("first", True, None)
    assert [(c.key, c.before, c.after) for c in page["changes"]] == [("vm.swappiness", None, "10")]
    assert page["authors"] == [olga]


def test_publishing_what_somebody_changed_meanwhile_is_refused_on_the_same_page(olga, omar):
    made(olga)
    browser(omar).post(at("profile_edit", "base"), {"source": OTHER, "version": 1})

    answer = browser(olga).post(at("profile_publish", "base"), {"version": 1})

    assert answer.status_code == 412
    assert "changed since" in str(answer.context["publish_form"].non_field_errors())
    assert not Revision.objects.exists()


def test_revisions_are_compared_with_the_one_before_or_any_other(olga):
    published(olga)
    published(olga, source=OTHER)
    published(olga, source="settings: {vm.swappiness: 30}\n")
    client = browser(olga)

    page = client.get(at("revision", "base", 3)).context
    assert (str(page["against"]), page["changes"][0].before) == ("base r2", "20")
    page = client.get(at("revision", "base", 3) + "?against=1").context
    assert (str(page["against"]), page["changes"][0].before) == ("base r1", "10")
    assert client.get(at("revision", "base", 3) + "?against=99").status_code == 404
    assert client.get(at("revision", "base", 3) + "?against=rubbish").status_code == 200
    assert client.get(at("revision", "base", 99)).status_code == 404
    assert not client.get(at("revision", "base", 1)).context["is_latest"]


def test_a_draft_can_be_given_up_from_the_page(olga):
    made(olga)
    client = browser(olga)

    assert client.post(at("profile_discard", "base"), {"version": "x"}).status_code == 422
    assert client.post(at("profile_discard", "base"), {"version": 1}).status_code == 302
    assert Profile.objects.get().draft == ""
    assert client.post(at("profile_discard", "base"), {"version": 2}).status_code == 409
