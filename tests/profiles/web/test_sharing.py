"""Comparing, exporting and importing, in pages and over REST; and where a revision is used."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from rest_framework.test import APIClient

from audit.models import Record
from profiles import exports
from profiles.content import content
from profiles.content.content import Content, ContentDifference, WantedSetting, WantedTaint, build
from profiles.document import schema
from profiles.models import Profile
from profiles.services import imports
from tests.profiles.services.test_profiles import OTHER, SOURCE, made, published
from tests.profiles.strategies import documents
from tests.profiles.web.test_pages import at, browser


# ── Differences ───────────────────────────────────────────────────────────────────────────────────────────────────────
def applied(differences: list[ContentDifference], to: Content) -> Content:
    """`to`, changed as the differences say; written from their words alone."""
    rows: dict[str, dict[str, str]] = {
        "settings": {s.key: s.value if s.operator == "=" else f"{s.operator} {s.value}" for s in to.settings},
        "labels": {mark.key: mark.value for mark in to.labels},
        "annotations": {mark.key: mark.value for mark in to.annotations},
        "taints": {taint.name: taint.value for taint in to.taints},
    }
    for difference in differences:
        part = rows[difference.part]
        assert part.get(difference.key) == difference.before
        if difference.after is None:
            del part[difference.key]
        else:
            part[difference.key] = difference.after

    def wanted(key: str, text: str) -> WantedSetting:
        operator, _, value = text.partition(" ") if text[:2] in (">=", "<=") else ("=", "", text)
        return WantedSetting(key, operator, value, "", "")

    def taint(name: str, value: str) -> WantedTaint:
        key, _, effect = name.rpartition(":")
        return WantedTaint(key, value, effect, "")

    return build(
        settings=[wanted(*row) for row in rows["settings"].items()],
        labels=[content.Mark(*row, "") for row in rows["labels"].items()],
        annotations=[content.Mark(*row, "") for row in rows["annotations"].items()],
        taints=[taint(*row) for row in rows["taints"].items()],
    )


def flat(document: schema.ProfileDocument) -> Content:
    return schema.flatten(document, None, origin="x").content


@settings(max_examples=60)
@given(documents(st.none()), documents(st.none()))
def test_a_difference_applied_to_the_first_gives_the_second(
    first: schema.ProfileDocument, second: schema.ProfileDocument
) -> None:
    a, b = flat(first), flat(second)

    differences = content.diff(a, b)

    assert content.digest(applied(differences, a)) == content.digest(b)
    assert bool(differences) == (content.digest(a) != content.digest(b))
    assert content.digest(applied(content.diff(None, b), Content())) == content.digest(b)


# ── Compare ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_any_two_revisions_are_compared_by_name(vera, olga):
    published(olga)
    published(olga, source=OTHER)
    published(olga, "top", "extends: base\nlabels: {a: b}\n")
    client = browser(vera)

    context = client.get(at("compare"), {"before": "base r1", "after": "top"}).context
    assert (str(context["before"]), str(context["after"])) == ("base r1", "top r1")
    assert [(c.part, c.key, c.before, c.after) for c in context["changes"]] == [
        ("settings", "vm.swappiness", "10", "20"),
        ("labels", "a", None, "b"),
    ]
    assert client.get(at("compare")).status_code == 200
    assert client.get(at("compare"), {"before": "base r1"}).status_code == 200, "half of the question is no mistake"
    wrong = client.get(at("compare"), {"before": "base r9", "after": "<x>"})
    assert (wrong.status_code, sorted(wrong.context["form"].errors)) == (422, ["after", "before"])
    assert wrong.context["form"]["before"].value() == "base r9"


# ── Exports ───────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("to", exports.FORMATS)
def test_every_format_is_previewed_and_downloaded(vera, olga, to):
    published(olga, source="settings: {vm.swappiness: 10, vm.max_map_count: '>= 262144'}\nlabels: {a: b}\n")
    client = browser(vera)

    page = client.get(at("export", "base", 1), {"to": to})
    file = client.get(at("export_file", "base", 1, to))

    export = page.context["export"]
    assert file.content.decode() == export.text
    assert f'filename="{export.filename}"' in file["Content-Disposition"]
    assert "base r1, sha256:" in "".join(file.content.decode().splitlines()[:3])
    for missing in export.missing:
        assert missing.key in page.content.decode()
    assert client.get(at("export_file", "base", 1, "floppy")).status_code == 404
    assert client.get(at("export", "base", 1), {"to": "<b>"}).status_code == 404


def test_the_box_writes_raise_only_values_plainly(vera, olga):
    published(olga, source="settings: {vm.max_map_count: '>= 262144'}\n")

    path = at("export_file", "base", 1, "sysctl.d")
    assert "\nvm.max_map_count" not in browser(vera).get(path).content.decode()
    assert "\nvm.max_map_count = 262144\n" in browser(vera).get(path, {"fixed": "1"}).content.decode()


# ── Imports ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_an_import_shows_what_it_will_do_and_then_does_that(olga):
    client = browser(olga)

    looked = client.post(at("profile_import"), {"name": "base", "source": SOURCE, "intent": "look"})
    preview = looked.context["preview"]
    assert (looked.status_code, preview.would, [c.key for c in preview.changes]) == (200, "create", ["vm.swappiness"])
    assert not Profile.objects.exists()

    sent = {"name": "base", "source": SOURCE, "token": preview.token, "intent": "store"}
    assert client.post(at("profile_import"), sent)["Location"] == at("profile", "base")
    assert Profile.objects.get().draft == SOURCE
    assert Record.objects.filter(action="profile.create").count() == 1


def test_what_changed_since_the_look_is_not_overwritten(olga, omar):
    published(olga)
    looked = browser(olga).post(at("profile_import"), {"name": "base", "source": OTHER, "intent": "look"})
    preview = looked.context["preview"]
    assert (preview.would, preview.changes[0].before) == ("replace-draft", "10")
    browser(omar).post(
        at("profile_edit", "base"), {"source": "labels: {a: b}\n", "version": Profile.objects.get().version}
    )

    sent = {"name": "base", "source": OTHER, "token": preview.token, "intent": "store"}
    answer = browser(olga).post(at("profile_import"), sent)

    assert answer.status_code == 412
    assert "Preview again" in answer.content.decode()
    assert Profile.objects.get().draft == "labels: {a: b}\n"
    for unseen in ({"token": ""}, {"source": SOURCE}, {"name": "other"}):
        assert browser(olga).post(at("profile_import"), sent | unseen).status_code == 412


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"name": "base", "source": "settings: {vm.swappiness: 999}"}, "out of range"),
        ({"name": "No", "source": SOURCE}, "lower-case"),
        ({"name": "import", "source": SOURCE}, "address"),
        ({"name": "base", "source": " "}, "Is empty"),
        ({"name": "base"}, "required"),
        ({"name": "base", "source": "extends: nothing"}, "there is no profile nothing"),
        ({"name": "base", "source": "a: [\x07"}, "line"),
    ],
)
def test_a_bad_import_is_named_and_kept(olga, sent, message):
    answer = browser(olga).post(at("profile_import"), sent | {"intent": "look"})

    assert answer.status_code == 422
    assert message.lower() in answer.content.decode().lower()
    assert answer.context["form"]["name"].value() == sent["name"]
    assert answer.context["form"]["source"].value() == sent.get("source")
    assert not Profile.objects.exists()


def test_what_is_exported_can_be_imported_and_means_the_same(olga):
    published(olga, source="settings: {vm.swappiness: {value: 10, why: mine}}\nlabels: {a: '1'}\n")
    top = published(olga, "top", "extends: base\ntaints: [{key: x.io/y, effect: NoExecute}]\n")
    client = browser(olga)
    text = client.get(at("export_file", "top", 1, "profile")).content.decode()

    looked = client.post(at("profile_import"), {"name": "copy", "source": text, "intent": "look"})

    assert content.digest(looked.context["preview"].checked.content) == top.digest
    assert yaml.safe_load(text)["settings"]["vm.swappiness"]["why"] == "mine"


# ── REST ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def caller(user: Any) -> APIClient:
    client = APIClient()
    client.force_authenticate(user)
    return client


def test_rest_exports_and_lists_what_is_missing(olga):
    revision = published(olga, source="settings: {vm.swappiness: 10, cpu.scaling_governor: performance}\n")
    client = caller(olga)

    answer = client.get(f"/api/v1/revisions/{revision.pk}/exports/sysctl.d").json()

    assert (answer["format"], answer["filename"]) == ("sysctl.d", "90-base.conf")
    assert answer["missing"] == [
        {"part": "settings", "key": "cpu.scaling_governor", "wanted": "= performance", "why": "is no sysctl"}
    ]
    assert "vm.swappiness = 10" in answer["text"]
    assert client.get(f"/api/v1/revisions/{revision.pk}/exports/floppy").status_code == 404
    wrong = client.get(f"/api/v1/revisions/{revision.pk}/exports/tuned?fixed=maybe")
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "fixed")


def test_rest_imports_in_two_steps(olga, vera):
    body = {"name": "base", "source": SOURCE}
    client = caller(olga)

    looked = client.post("/api/v1/profiles/actions/import", body, format="json").json()
    assert (looked["would"], looked["is_stored"], Profile.objects.count()) == ("create", False, 0)
    stored = client.post("/api/v1/profiles/actions/import", body | {"token": looked["token"]}, format="json").json()
    assert (stored["is_stored"], Profile.objects.get().draft) == (True, SOURCE)
    stale = client.post("/api/v1/profiles/actions/import", body | {"token": "x"}, format="json")
    assert stale.status_code == 412
    assert caller(vera).post("/api/v1/profiles/actions/import", body, format="json").status_code == 403


def test_a_viewer_may_compare_and_export_but_not_import(vera, olga):
    made(olga)

    assert browser(vera).get(at("profile_import")).status_code == 403
    assert (
        browser(vera).post(at("profile_import"), {"name": "x", "source": SOURCE, "intent": "store"}).status_code == 403
    )


@pytest.mark.parametrize(
    ("would", "label"),
    [("create", "Create base"), ("nothing", "Go to base"), ("replace", "Replace the draft of base")],
)
def test_the_button_of_an_import_says_what_it_does(would, label):
    preview = imports.ImportPreview("base", would, checked=None, changes=(), token="")
    assert preview.act == label
