"""Drafts become revisions: validated, immutable, with every writer named, and never twice."""

from __future__ import annotations

import threading

import pytest
from django.db import IntegrityError, connection, transaction

from audit.models import Record
from common.errors import Invalid, NotAllowed, Refusal, Stale, WrongState
from profiles.document.schema import InvalidProfile
from profiles.models import Profile, Revision
from profiles.services import editing

SOURCE = "settings:\n  vm.swappiness: 10\n"
OTHER = "settings:\n  vm.swappiness: 20\n"


def made(by, name="base", source=SOURCE) -> Profile:
    return editing.create(name=name, source=source, by=by)


def published(by, name="base", source=SOURCE) -> Revision:
    profile = Profile.objects.filter(name=name).first() or made(by, name, source)
    if profile.draft != source:
        editing.save_draft(profile, source=source, by=by, version=profile.version)
    return editing.publish(profile, message="because", by=by, version=profile.version)


# ── Creating and editing ──────────────────────────────────────────────────────────────────────────────────────────────
def test_a_profile_begins_as_a_draft_and_its_writer_is_an_author(olga):
    profile = made(olga)

    assert (profile.draft, profile.draft_authors, profile.version, profile.latest) == (SOURCE, [olga.pk], 1, None)
    record = Record.objects.get()
    assert (record.action, record.actor, record.target_name) == ("profile.create", "olga@example.com", "base")


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a b", "a/b", "..", "a" * 64, "ä", "new", "a\n"])
def test_a_bad_name_is_refused_and_nothing_stored(olga, name):
    with pytest.raises(Invalid) as caught:
        made(olga, name)

    assert "name" in caught.value.fields
    assert not Profile.objects.exists()
    assert not Record.objects.exists()


def test_a_name_is_taken_once(olga):
    made(olga)

    with pytest.raises(Invalid) as caught:
        made(olga)
    assert caught.value.fields == {"name": ["Is taken."]}
    assert Record.objects.count() == 1


def test_an_invalid_document_is_refused_and_the_draft_stays(olga):
    profile = made(olga)

    with pytest.raises(InvalidProfile):
        editing.save_draft(profile, source="settings: {vm.nope: 1}", by=olga, version=1)
    with pytest.raises(InvalidProfile):
        made(olga, "other", "settings: {vm.nope: 1}")

    profile.refresh_from_db()
    assert (profile.draft, profile.version) == (SOURCE, 1)
    assert not Profile.objects.filter(name="other").exists()


def test_the_slower_writer_is_told_and_loses_nothing_of_the_faster(olga, omar):
    profile = made(olga)
    seen_by_omar = Profile.objects.get()
    editing.save_draft(profile, source=OTHER, by=olga, version=1)

    with pytest.raises(Stale):
        editing.save_draft(seen_by_omar, source="labels: {a: b}", by=omar, version=1)

    profile.refresh_from_db()
    assert (profile.draft, profile.draft_authors, profile.version) == (OTHER, [olga.pk], 2)


def test_a_viewer_writes_nothing(olga, vera):
    profile = made(olga)

    with pytest.raises(NotAllowed):
        made(vera, "mine")
    with pytest.raises(NotAllowed):
        editing.save_draft(profile, source=OTHER, by=vera, version=1)
    with pytest.raises(NotAllowed):
        editing.discard_draft(profile, by=vera, version=1)
    with pytest.raises(NotAllowed):
        editing.publish(profile, by=vera, version=1)
    assert Profile.objects.get().draft == SOURCE


def test_a_draft_can_be_given_up_once(olga):
    profile = made(olga)
    editing.discard_draft(profile, by=olga, version=1)

    assert (profile.draft, profile.draft_authors) == ("", [])
    with pytest.raises(WrongState):
        editing.discard_draft(profile, by=olga, version=2)


def test_going_back_to_the_published_text_is_no_draft(olga):
    profile = published(olga).profile
    editing.save_draft(profile, source=OTHER, by=olga, version=profile.version)
    editing.save_draft(profile, source=SOURCE, by=olga, version=profile.version)

    assert (profile.draft, profile.draft_authors) == ("", [])


# ── Publishing ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_everybody_who_saved_the_draft_is_an_author_and_the_publisher_need_not_be(olga, omar, vera):
    profile = made(olga)
    editing.save_draft(profile, source=OTHER, by=omar, version=1)
    editing.save_draft(profile, source=OTHER + "labels: {a: b}\n", by=olga, version=2)
    revision = editing.publish(profile, by=omar, version=3)

    assert set(revision.authors.all()) == {olga, omar}
    assert (str(revision), revision.published_by, revision.source) == ("base r1", omar, profile.revisions.get().source)
    assert profile.draft == ""

    second = published(omar, source=SOURCE)
    assert set(second.authors.all()) == {omar}, "authors are of the draft, not of the profile"


def test_a_revision_holds_what_it_means_and_its_digest(olga):
    revision = published(olga)

    assert revision.content["settings"] == [
        {"key": "vm.swappiness", "operator": "=", "value": "10", "apply_class": "live", "origin": "base r1", "why": ""}
    ]
    assert revision.digest.startswith("sha256:")
    assert Revision.objects.named(revision.digest).get() == revision
    assert Revision.objects.named(str(revision.pk)).get() == revision
    assert not Revision.objects.named("1; drop").exists()


def test_a_revision_cannot_be_changed(olga):
    revision = published(olga)

    with pytest.raises(TypeError, match="immutable"):
        revision.save()
    with pytest.raises(TypeError, match="immutable"):
        Revision.objects.filter(pk=revision.pk).update(message="x")
    with pytest.raises(TypeError, match="immutable"):
        revision.profile.revisions.update(message="x")


def test_what_means_the_same_as_the_latest_is_not_published_again(olga):
    profile = published(olga).profile
    editing.save_draft(profile, source="# why\n" + SOURCE, by=olga, version=profile.version)

    with pytest.raises(WrongState, match="the same as base r1"):
        editing.publish(profile, by=olga, version=profile.version)
    assert Revision.objects.count() == 1


def test_going_back_publishes_the_old_digest_under_a_new_number(olga):
    first = published(olga)
    published(olga, source=OTHER)
    third = published(olga, source=SOURCE)

    assert (third.number, third.digest) == (3, first.digest)
    assert Revision.objects.named(first.digest).first() == third, "a digest names the newest of its meaning"


def test_a_digest_that_two_profiles_share_is_not_guessed_at(olga):
    first = published(olga)
    twin = editing.create(name="twin", source=SOURCE, by=olga)
    second = editing.publish(twin, by=olga, version=twin.version)
    assert second.digest == first.digest

    with pytest.raises(Invalid) as refused:
        editing.meant(first.digest)
    message = refused.value.fields["revision"][0]
    assert str(first.pk) in message
    assert str(second.pk) in message
    assert editing.meant(str(second.pk)) == second


def test_nothing_cannot_be_published(olga):
    empty = made(olga, source="")

    with pytest.raises(WrongState, match="no draft"):
        editing.publish(empty, by=olga, version=1)
    editing.save_draft(empty, source="description: soon", by=olga, version=1)
    with pytest.raises(Invalid, match="must want something"):
        editing.publish(empty, by=olga, version=2)


@pytest.mark.parametrize("message", ["x" * 301, "a\x00b", "\ud800"])
def test_a_message_that_cannot_be_kept_is_refused(olga, message):
    profile = made(olga)

    with pytest.raises(Invalid) as caught:
        editing.publish(profile, message=message, by=olga, version=1)
    assert "message" in caught.value.fields
    assert not Revision.objects.exists()


def test_a_publisher_who_saw_an_older_draft_is_told(olga, omar):
    profile = made(olga)
    seen_by_omar = Profile.objects.get()
    editing.save_draft(profile, source=OTHER, by=olga, version=1)

    with pytest.raises(Stale):
        editing.publish(seen_by_omar, by=omar, version=1)
    with pytest.raises(Stale):
        editing.publish(profile, by=omar, version=1)
    with pytest.raises(Stale):
        editing.publish(seen_by_omar, by=omar, version=2)  # the number is right, but this row's draft is the old one
    assert not Revision.objects.exists()


def test_publishing_is_recorded_with_what_it_was_and_what_it_is(olga):
    first = published(olga)
    second = published(olga, source=OTHER)

    record = Record.objects.filter(action="profile.publish").get(target=f"revision:{second.pk}")
    assert (record.before["digest"], record.after["digest"]) == (first.digest, second.digest)
    assert record.message == "because"


def test_a_refused_publication_leaves_no_record_and_no_half_revision(olga, monkeypatch):
    profile = made(olga)

    def fail(**_):
        raise RuntimeError("the audit table is full")

    monkeypatch.setattr(editing, "record", fail)
    with pytest.raises(RuntimeError):
        editing.publish(profile, by=olga, version=1)

    stored = Profile.objects.get()
    assert (stored.draft, stored.version) == (SOURCE, 1)
    assert not Revision.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_of_two_publications_at_once_one_wins_and_the_other_is_told(olga, omar):
    profile = made(olga)
    start = threading.Barrier(2)
    outcomes: list[object] = []

    def publish(by):
        try:
            mine = Profile.objects.get(pk=profile.pk)
            start.wait(timeout=10)
            outcomes.append(editing.publish(mine, by=by, version=1))
        except Refusal as refusal:
            outcomes.append(refusal)
        finally:
            connection.close()

    threads = [threading.Thread(target=publish, args=(by,)) for by in (olga, omar)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    assert sorted(type(outcome).__name__ for outcome in outcomes) in (["Revision", "Stale"], ["Revision", "WrongState"])
    assert Revision.objects.count() == 1
    assert Record.objects.filter(action="profile.publish").count() == 1


def test_the_database_keeps_numbers_unique_even_if_the_service_is_wrong(olga, monkeypatch):
    revision = published(olga)
    with pytest.raises(IntegrityError), transaction.atomic():
        Revision.objects.create(profile=revision.profile, number=1, digest="x", source="", content={})

    profile = revision.profile
    editing.save_draft(profile, source=OTHER, by=olga, version=profile.version)
    monkeypatch.setattr(Profile, "latest", None)
    with pytest.raises(WrongState, match="by another party"):
        editing.publish(profile, by=olga, version=profile.version)
    assert Revision.objects.count() == 1
    assert Profile.objects.get().draft == OTHER


# ── Extending ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_name_alone_extends_the_newest_and_is_pinned_when_published(olga):
    published(olga)
    top = published(olga, "top", "extends: base\nsettings: {vm.dirty_ratio: 40}\n")
    published(olga, source=OTHER)

    assert str(top.extends) == "base r1"
    assert [(s.key, s.value, s.origin) for s in top.flat.settings] == [
        ("vm.dirty_ratio", "40", "top r1"),
        ("vm.swappiness", "10", "base r1"),
    ]


def test_publishing_again_without_a_draft_takes_the_newest_parent(olga, omar):
    published(olga)
    top = published(olga, "top", "extends: base\nlabels: {a: b}\n")
    with pytest.raises(WrongState, match="Nothing would change"):
        editing.publish(top.profile, by=omar, version=top.profile.version)
    published(olga, source=OTHER)

    profile = Profile.objects.get(name="top")
    again = editing.publish(profile, by=omar, version=profile.version)

    assert (str(again), str(again.extends)) == ("top r2", "base r2")
    assert set(again.authors.all()) == {olga, omar}


def test_a_named_revision_is_extended_even_when_there_are_newer_ones(olga):
    published(olga)
    published(olga, source=OTHER)
    top = published(olga, "top", "extends: base r1\nlabels: {a: b}\n")

    assert top.flat.setting("vm.swappiness").value == "10"


@pytest.mark.parametrize(
    ("extends", "says"),
    [
        ("nobody", "there is no profile nobody"),
        ("base r7", "base r7 was never published"),
        ("draft", "never published"),
    ],
)
def test_what_was_never_published_cannot_be_extended(olga, extends, says):
    published(olga)
    made(olga, "draft")

    with pytest.raises(InvalidProfile, match=says) as caught:
        made(olga, "top", f"description: x\nextends: {extends}\nlabels: {{a: b}}\n")
    assert list(caught.value.fields) == ["extends (line 2)"]


def test_circles_are_refused(olga):
    published(olga)
    published(olga, "middle", "extends: base\nlabels: {a: b}\n")
    published(olga, "top", "extends: middle\nlabels: {a: c}\n")
    base = Profile.objects.get(name="base")

    with pytest.raises(InvalidProfile, match="cannot extend itself"):
        editing.save_draft(base, source="extends: base r1\n", by=olga, version=base.version)
    with pytest.raises(InvalidProfile, match="circle: top r1, which extends middle r1, which extends base r1"):
        editing.save_draft(base, source="extends: top\nlabels: {a: d}\n", by=olga, version=base.version)


def test_stacks_end_somewhere(olga):
    published(olga, "p0", "labels: {a: '0'}\n")
    for n in range(1, editing.DEEPEST):
        published(olga, f"p{n}", f"extends: p{n - 1}\nlabels: {{a: '{n}'}}\n")

    with pytest.raises(InvalidProfile, match="in a row"):
        made(olga, "top", f"extends: p{editing.DEEPEST - 1}\nlabels: {{a: x}}\n")


def test_a_coupled_key_of_the_parent_is_named_with_its_origin(olga):
    published(olga, source="settings: {vm.dirty_ratio: 40}\n")

    with pytest.raises(InvalidProfile, match=r"vm.dirty_ratio \(base r1\)"):
        made(olga, "top", "extends: base\nsettings: {vm.dirty_bytes: 1Gi}\n")
