"""What comes with the product is sound, published once, and left alone by people."""

from __future__ import annotations

import io

import pytest
from django.core.management import call_command

from audit.models import Record
from common.errors import WrongState
from profiles import catalogue, library, schema, services
from profiles.models import Profile, Revision


def loaded() -> str:
    out = io.StringIO()
    call_command("load_library", stdout=out)
    return out.getvalue()


def test_every_library_profile_is_valid_and_harmless():
    for name in library.names():
        checked = schema.flatten(schema.parse(library.source(name)), None, origin=name)

        assert checked.warnings == (), name
        assert checked.content.settings, name
        assert checked.document.description, name


def test_every_library_setting_says_why_and_is_within_every_platforms_limits():
    for name in library.names():
        content = schema.flatten(schema.parse(library.source(name)), None, origin=name).content
        for setting in content.settings:
            info = catalogue.get(setting.key)
            assert len(setting.why) > 40, setting.key
            assert all(limit.permits(int(setting.value)) for limit in info.platforms), setting.key
            assert not info.caution, setting.key


def test_the_gpu_baseline_needs_no_drain():
    content = schema.flatten(schema.parse(library.source("gpu-baseline")), None, origin="x").content

    assert content.worst_class == "live"
    assert content.setting("vm.swappiness").value == "10"
    assert content.setting("vm.max_map_count").operator == ">="


def test_loading_twice_publishes_once(db):
    assert "published gpu-baseline r1" in loaded()
    assert "is published already" in loaded()

    revision = Revision.objects.get(profile__name="gpu-baseline")
    assert (revision.number, revision.published_by, revision.authors.count()) == (1, None, 0)
    assert {r.actor for r in Record.objects.all()} == {services.LIBRARY}


def test_a_new_version_of_the_library_is_a_new_revision(db, monkeypatch):
    loaded()
    monkeypatch.setattr(library, "source", lambda name: "settings: {vm.swappiness: 5}\n")

    assert "published gpu-baseline r2" in loaded()
    assert Revision.objects.get(number=2).flat.setting("vm.swappiness").value == "5"


def test_people_extend_a_library_profile_and_do_not_edit_it(olga):
    loaded()
    profile = Profile.objects.get(name="gpu-baseline")

    with pytest.raises(WrongState, match="extends gpu-baseline"):
        services.save_draft(profile, source="labels: {a: b}\n", by=olga, version=profile.version)
    with pytest.raises(WrongState):
        services.publish(profile, by=olga, version=profile.version)
    mine = services.create(name="mine", source="extends: gpu-baseline\nsettings: {vm.swappiness: 1}\n", by=olga)
    revision = services.publish(mine, by=olga, version=mine.version)
    assert revision.flat.setting("fs.aio-max-nr").origin == "gpu-baseline r1"


def test_a_profile_of_ones_own_by_that_name_is_left_alone(olga):
    services.create(name="gpu-baseline", source="labels: {a: b}\n", by=olga)

    assert "a profile of your own" in loaded()
    assert Profile.objects.get().draft == "labels: {a: b}\n"
    assert not Revision.objects.exists()
