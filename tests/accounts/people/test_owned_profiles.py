"""Laws of owned profiles: by each way in, only operators with a role in the team, and administrators, change one."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from accounts.people import owners
from audit.models import Record
from common.errors import Invalid, NotAllowed, Stale, WrongState
from gpus.models import Team
from gpus.showback import teams
from profiles import exports
from profiles.document.schema import InvalidProfile
from profiles.models import Profile
from profiles.services import editing, imports
from tests.factories import TokenClient, UserFactory

pytestmark = pytest.mark.django_db
SOURCE = "settings:\n  vm.swappiness: 1\n"
OTHER = "settings:\n  vm.swappiness: 2\n"


@pytest.fixture
def team() -> Team:
    return Team.objects.create(name="Speech")


@pytest.fixture
def admin() -> User:
    return UserFactory(roles=["admin"])


@pytest.fixture
def profile(team: Team, admin: User) -> Profile:
    row = editing.create(name="speech", source=SOURCE, by=UserFactory(roles=["operator"]))
    return editing.set_owner(row, owner="Speech", by=admin, version=row.version)


def member(team: Team, *roles: str) -> User:
    return UserFactory(roles=[f"viewer@team:{team.pk}", *roles])


def test_no_operator_without_a_role_in_the_team_changes_it_by_any_way_in(profile: Profile, team: Team) -> None:
    Team.objects.create(name="Vision")
    by, version, browser = UserFactory(roles=["operator", "approver"]), profile.version, Client()
    ways = [
        lambda: editing.save_draft(profile, source=OTHER, by=by, version=version),
        lambda: editing.publish(profile, by=by, version=version),
        lambda: editing.discard_draft(profile, by=by, version=version),
        lambda: editing.set_owner(profile, owner=None, by=by, version=version),
        lambda: editing.set_owner(profile, owner="Vision", by=by, version=version),
        lambda: imports.preview(name="speech", source=OTHER, by=by),
        lambda: editing.create(name="fresh", source=SOURCE, owner="Speech", by=by),
    ]
    for way in ways:
        with pytest.raises(NotAllowed):
            way()
    client, match = TokenClient(by), {"HTTP_IF_MATCH": f'"{version}"'}
    here = "/api/v1/profiles/speech"
    assert client.patch(here, {"source": OTHER}, **match).status_code == 403
    assert client.patch(here, {"owner": None}, **match).status_code == 403
    assert client.patch(here, {"source": OTHER, "owner": "Vision"}, **match).status_code == 403
    assert client.post(f"{here}/actions/publish", **match).status_code == 403
    assert client.post(f"{here}/actions/discard", **match).status_code == 403
    assert client.post("/api/v1/profiles/actions/import", {"name": "speech", "source": OTHER}).status_code == 403
    assert client.post("/api/v1/profiles", {"name": "fresh", "source": SOURCE, "owner": "Speech"}).status_code == 403
    assert client.get(here).json()["permissions"] == ["check"]
    browser.force_login(by)
    assert browser.get("/profiles/speech/edit/").status_code == 403
    sent = {"version": version, "source": OTHER, "view": "yaml", "owner": "Vision"}
    for page in ("edit", "publish", "discard", "owner"):
        assert browser.post(f"/profiles/speech/{page}/", sent).status_code == 403, page
    shown = browser.get("/profiles/speech/").content.decode()
    assert "Owner: <b>Speech</b>" in shown
    assert "/profiles/speech/edit/" not in shown
    assert "h-owner" not in shown
    profile.refresh_from_db()
    assert (profile.version, profile.draft, profile.owner_team) == (version, SOURCE, team.pk)
    assert not profile.revisions.exists()
    assert not Profile.objects.filter(name="fresh").exists()


def test_an_operator_with_a_role_in_the_team_drafts_and_publishes_it(profile: Profile, team: Team) -> None:
    by = member(team, "operator@env:staging")
    editing.save_draft(profile, source=OTHER, by=by, version=profile.version)
    assert str(editing.publish(profile, by=by, version=profile.version)) == "speech r1"
    client, match = TokenClient(by), {"HTTP_IF_MATCH": f'"{profile.version}"'}
    assert client.patch("/api/v1/profiles/speech", {"source": SOURCE}, **match).status_code == 200
    with pytest.raises(NotAllowed):
        editing.set_owner(profile, owner=None, by=by, version=profile.version)


def test_a_role_in_the_team_alone_is_no_right(profile: Profile, team: Team) -> None:
    for roles in ((), ("viewer",), ("approver",), ("auditor",)):
        with pytest.raises(NotAllowed):
            editing.save_draft(profile, source=OTHER, by=member(team, *roles), version=profile.version)


def test_an_administrator_of_one_cluster_is_none_of_what_all_clusters_share(profile: Profile) -> None:
    by = UserFactory(roles=["admin@env:staging", "operator"])
    with pytest.raises(NotAllowed):
        editing.set_owner(profile, owner=None, by=by, version=profile.version)
    with pytest.raises(NotAllowed):
        editing.save_draft(profile, source=OTHER, by=by, version=profile.version)


def test_an_owner_is_set_with_the_version_that_was_read_and_is_on_record(profile: Profile, admin: User) -> None:
    with pytest.raises(Stale):
        editing.set_owner(profile, owner=None, by=admin, version=profile.version - 1)
    before = profile.version
    client, match = TokenClient(admin), {"HTTP_IF_MATCH": f'"{before}"'}
    answer = client.patch("/api/v1/profiles/speech", {"owner": None}, **match)
    assert (answer.status_code, answer.json()["owner"], answer["ETag"]) == (200, None, f'"{before + 1}"')
    assert client.patch("/api/v1/profiles/speech", {"owner": "Speech"}, **match).status_code == 412
    kept = Record.objects.filter(action="profile.owner", after__owner=None).get()
    assert (kept.before, kept.after) == ({"owner": "Speech"}, {"owner": None})
    assert TokenClient(admin, ["read", "plan"]).patch(
        "/api/v1/profiles/speech", {"owner": "Speech"}, HTTP_IF_MATCH=f'"{before + 1}"'
    ).status_code == 403  # fmt: skip


def test_nothing_is_half_done_where_draft_and_owner_come_together(profile: Profile, admin: User, team: Team) -> None:
    version = profile.version
    with pytest.raises(NotAllowed):  # an administrator is no operator: the owner is not changed either
        editing.change(profile, by=admin, version=version, source=OTHER, owner=None)
    both = UserFactory(roles=["admin", "operator"])
    with pytest.raises(Invalid):
        editing.change(Profile.objects.get(), by=both, version=version, source=OTHER, owner="Nobody")
    assert Profile.objects.values_list("draft", "owner_team", "version").get() == (SOURCE, team.pk, version)
    editing.change(Profile.objects.get(), by=both, version=version, source=OTHER, owner=None)
    assert Profile.objects.values_list("draft", "owner_team", "version").get() == (OTHER, None, version + 2)


def test_a_profile_given_to_a_team_meanwhile_is_not_changed_by_who_no_longer_may(profile: Profile, team: Team) -> None:
    Profile.objects.update(owner_team=None)
    read = Profile.objects.get()
    Profile.objects.update(owner_team=team.pk)
    with pytest.raises(Stale):
        editing.save_draft(read, source=OTHER, by=UserFactory(roles=["operator"]), version=read.version)


def test_what_comes_with_setpoint_has_no_owner(admin: User, team: Team) -> None:
    library = Profile.objects.create(name="base", is_library=True)
    with pytest.raises(WrongState):
        editing.set_owner(library, owner="Speech", by=admin, version=1)
    editing.set_owner(Profile.objects.create(name="mine"), owner="Speech", by=admin, version=1)
    with pytest.raises(WrongState) as refused:
        teams.remove(team, by=admin)
    assert "the profile mine" in str(refused.value)


def test_lists_show_it_and_narrow_by_it(profile: Profile, admin: User) -> None:
    Profile.objects.create(name="free")
    client, browser = TokenClient(UserFactory(roles=["viewer"])), Client()
    rows: list[dict[str, Any]] = client.get("/api/v1/profiles?owner=Speech").json()["results"]
    assert [(row["name"], row["owner"]) for row in rows] == [("speech", "Speech")]
    assert client.get("/api/v1/profiles?owner=Nobody").status_code == 422
    browser.force_login(admin)
    page = browser.get("/profiles/?owner=Speech").content.decode()
    assert "/profiles/speech/" in page
    assert "/profiles/free/" not in page
    assert "No profile matches" in browser.get("/profiles/?owner=Nobody").content.decode()
    sent = {"owner": "", "version": profile.version}
    assert browser.post("/profiles/speech/owner/", sent | {"owner": "Nobody"}).status_code == 422
    assert browser.post("/profiles/speech/owner/", sent).status_code == 302
    profile.refresh_from_db()
    assert profile.owner_team is None


def test_an_export_has_no_owner_so_it_is_imported_where_that_team_is_not(profile: Profile, team: Team) -> None:
    """An owner is of the installation, as roles are: a file that could name one would hand over a profile."""
    by = member(team, "operator")
    editing.publish(profile, by=by, version=profile.version)
    browser = Client()
    browser.force_login(by)
    for to in exports.FORMATS:
        answer = browser.get(f"/profiles/speech/r1/export/{to}/")
        assert answer.status_code == 200, to
        assert "Speech" not in answer.content.decode(), to
    with pytest.raises(InvalidProfile) as refused:
        editing.create(name="brought", source=f"owner: Speech\n{SOURCE}", by=by)
    assert "owner" in str(refused.value)


def test_the_team_is_held_before_the_row_is_locked(
    profile: Profile, admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal of the team, and a second change, take both in this order: otherwise two would wait for each other."""
    Team.objects.create(name="Vision")
    versions = []
    hold = owners.hold

    def held(owner: int | None) -> None:
        versions.append(Profile.objects.get(pk=profile.pk).version)
        hold(owner)

    monkeypatch.setattr(owners, "hold", held)
    by, version = UserFactory(roles=["admin", "operator"]), profile.version
    editing.change(profile, by=by, version=version, source=OTHER, owner="Vision")
    assert versions[0] == version


def test_a_team_that_is_removed_meanwhile_becomes_no_owner_of_a_profile(
    profile: Profile, admin: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    vision = Team.objects.create(name="Vision")
    monkeypatch.setattr(owners, "team_id", lambda name: vision.pk)
    Team.objects.filter(pk=vision.pk).delete()
    with pytest.raises(Invalid) as refused:
        editing.set_owner(profile, owner="Vision", by=admin, version=profile.version)
    assert "removed just now" in refused.value.fields["owner"][0]


def test_flags_and_list_of_profiles_agree_with_what_is_done(profile: Profile, team: Team, admin: User) -> None:
    Profile.objects.create(name="lib", is_library=True)
    client, browser = TokenClient(admin), Client()
    library, own = (client.get(f"/api/v1/profiles/{name}").json() for name in ("lib", "speech"))
    assert [("change_owner" in row["actions"], "change_owner" in row["permissions"]) for row in (library, own)] == [
        (False, False),
        (True, True),
    ]
    Team.objects.create(name="Vision")
    Team.objects.filter(pk=team.pk).delete()
    browser.force_login(admin)
    assert f"team {team.pk}, which is gone" in browser.get("/profiles/").content.decode()
