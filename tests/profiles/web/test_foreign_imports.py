"""Other tools' files on the import page and over REST: chosen or recognized, shown, and stored as they were shown."""

from __future__ import annotations

from typing import Any

import pytest

from profiles.document import schema
from profiles.models import Profile
from tests.profiles.services.test_profiles import SOURCE, published
from tests.profiles.web.test_pages import at, browser
from tests.profiles.web.test_sharing import caller

SYSCTL = "vm.swappiness = 5\nvm.unheard_of = 1\nnet.ipv4.conf.*.rp_filter = 1\n"
IMPORT = "/api/v1/profiles/actions/import"


def look(client: Any, **sent: str) -> Any:
    return client.post(at("profile_import"), {"name": "brought", "source": SYSCTL, "intent": "look"} | sent)


@pytest.mark.parametrize("format", ["sysctl.d", "auto", ""])
def test_the_draft_and_what_is_not_in_it_are_shown_and_only_that_is_stored(olga, format):
    client = browser(olga)

    looked = look(client, format=format)

    preview, page = looked.context["preview"], looked.content.decode()
    assert (looked.status_code, preview.format.key, preview.would) == (200, "sysctl.d", "create")
    assert [entry.line for entry in preview.not_taken] == [2, 3]
    for entry in preview.not_taken:
        assert f'data-line="{entry.line}"' in page
        assert entry.text in page
    assert "sysctl.d" in page
    assert not Profile.objects.exists()
    assert looked.context["form"]["source"].value() == SYSCTL, "what was typed is kept"

    sent = {"name": "brought", "source": SYSCTL, "format": format, "token": preview.token, "intent": "store"}
    assert client.post(at("profile_import"), sent)["Location"] == at("profile", "brought")
    draft = Profile.objects.get().draft
    assert draft == preview.source
    assert [(wish.key, wish.value) for wish in schema.parse(draft).settings] == [("vm.swappiness", "5")]


def test_a_preview_as_one_format_does_not_store_as_another(olga):
    client = browser(olga)
    text = "[sysctl]\nvm.swappiness=5\n"
    token = look(client, source=text, format="tuned").context["preview"].token

    sent = {"name": "brought", "source": text, "format": "profile", "token": token, "intent": "store"}

    assert client.post(at("profile_import"), sent).status_code in (412, 422)
    assert not Profile.objects.exists()


@pytest.mark.parametrize(
    ("sent", "field", "message"),
    [
        ({"format": "floppy"}, "format", "floppy"),
        ({"format": "nodewright"}, "source", "NodeWright"),
        ({"format": "sysctl.d", "source": "nonsense"}, "source", "has no ="),
        ({"format": "tuned", "source": "[vm]\ntransparent_hugepages=sometimes\n"}, "source", "sometimes"),
        ({"format": "profile"}, "", "line"),
    ],
)
def test_bad_input_is_named_and_kept(olga, sent, field, message):
    answer = look(browser(olga), **sent)

    form = answer.context["form"]
    assert answer.status_code == 422
    assert message in answer.content.decode()
    assert list(form.errors) == ([field] if field else [])
    assert form["source"].value() == sent.get("source", SYSCTL)
    assert form["format"].value() == sent["format"]
    assert not Profile.objects.exists()


def test_a_draft_that_a_file_replaces_is_compared_with_the_newest_revision(olga):
    published(olga, "brought")

    looked = look(browser(olga), format="auto")

    preview = looked.context["preview"]
    assert preview.would == "replace-draft"
    assert [(change.key, change.before, change.after) for change in preview.changes] == [("vm.swappiness", "10", "5")]


def test_rest_reads_a_format_and_stores_in_a_second_call(olga):
    client, body = caller(olga), {"name": "brought", "source": SYSCTL, "format": "auto"}

    looked = client.post(IMPORT, body, format="json").json()

    assert (looked["format"], looked["is_stored"]) == ("sysctl.d", False)
    assert [(entry["line"], entry["text"]) for entry in looked["not_taken"]] == [
        (2, "vm.unheard_of = 1"),
        (3, "net.ipv4.conf.*.rp_filter = 1"),
    ]
    stored = client.post(IMPORT, body | {"token": looked["token"]}, format="json").json()
    assert stored["is_stored"] is True
    assert Profile.objects.get().draft == looked["source"]


def test_rest_expects_a_profile_where_no_format_is_given(olga):
    client = caller(olga)

    answer = client.post(IMPORT, {"name": "brought", "source": SOURCE}, format="json").json()
    assert (answer["format"], answer["source"], answer["not_taken"]) == ("profile", SOURCE, [])
    assert client.post(IMPORT, {"name": "brought", "source": SYSCTL}, format="json").status_code == 422
    wrong = client.post(IMPORT, {"name": "brought", "source": SYSCTL, "format": "floppy"}, format="json")
    assert (wrong.status_code, [error["field"] for error in wrong.json()["errors"]]) == (422, ["format"])
    bad = client.post(IMPORT, {"name": "brought", "source": "x", "format": "tuned"}, format="json")
    assert (bad.status_code, {error["field"] for error in bad.json()["errors"]}) == (422, {"source"})
