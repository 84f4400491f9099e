"""Profiles are written as drafts and published as revisions that never change."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from django.db import IntegrityError, transaction

from accounts.models import User
from accounts.people import owners
from accounts.permissions import ANYWHERE, GLOBAL, Role, require
from audit.services import record
from common import hooks
from common.clock import now
from common.errors import Invalid, Stale, WrongState
from profiles.content.content import Content, ContentDifference
from profiles.content.content import diff as content_diff
from profiles.document import schema
from profiles.document.document import BLOCK
from profiles.document.schema import Checked, InvalidProfile, ProfileDocument, ProfileNote
from profiles.models import Profile, Revision

LIBRARY = "Setpoint library"
"""Publisher of the profiles that come with the product."""
DEEPEST = 8
"""Revisions that may extend one another in a row: beyond that the origin of a value is hard to see."""

DRAFT = "draft"
"""The origin of what a text says itself, before it is published."""
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
RESERVED = frozenset({"new", "import", "compare", "settings"})
MAX_DESCRIPTION = 300
MAX_MESSAGE = 300
MAX_SOURCE = 256 * 1024
"""Characters that forms and REST accept; the YAML reader counts bytes and has the last word."""


@dataclass(frozen=True, slots=True)
class _CheckedDraft:
    checked: Checked
    parent: Revision | None


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def check(source: str, *, profile: Profile | None = None) -> Checked:
    """Return what `source` would mean, were it published now as a revision of `profile`. Raises InvalidProfile."""
    return _judge(source, profile, DRAFT).checked


def _judge(source: str, profile: Profile | None, origin: str) -> _CheckedDraft:
    document = schema.parse(source)
    above = parent(document, profile)
    checked = schema.flatten(document, above.flat if above else None, origin=origin)
    return _CheckedDraft(_with_findings(checked), above)


def _with_findings(checked: Checked) -> Checked:
    """Add the notes of the rooms above. Raises InvalidProfile where one of them blocks."""
    notes = [
        replace(note, line=note.line or checked.document.line(note.path))
        for note in hooks.profile_findings(checked.content)
    ]
    if blocks := [note for note in notes if note.severity == BLOCK]:
        raise InvalidProfile(blocks)
    if not notes:
        return checked
    return replace(checked, warnings=tuple(sorted((*checked.warnings, *notes), key=lambda note: note.line)))


def parent(document: ProfileDocument, profile: Profile | None) -> Revision | None:
    """The revision that the document extends now. Raises InvalidProfile."""
    if document.extends is None:
        return None

    def refuse(message: str) -> InvalidProfile:
        return InvalidProfile([ProfileNote("extends", document.line("extends"), "bad-extends", message)])

    wanted = document.extends
    if profile and wanted.profile == profile.name:
        raise refuse(f"{wanted.profile} cannot extend itself")
    revisions = Revision.objects.filter(profile__name=wanted.profile).select_related("profile").order_by("-number")
    if wanted.number is not None:
        revisions = revisions.filter(number=wanted.number)
    newest = revisions.first()
    if newest is None:
        known = Profile.objects.filter(name=wanted.profile).exists()
        missing = f"{wanted} was never published" if known else f"there is no profile {wanted.profile}"
        raise refuse(missing)
    chain = ancestry(newest)
    if profile and any(revision.profile_id == profile.pk for revision in chain):
        through = ", which extends ".join(str(revision) for revision in chain)
        raise refuse(f"would make a circle: {through}")
    if len(chain) >= DEEPEST:
        raise refuse(
            f"{newest} already extends {len(chain) - 1} others in a row; at most {DEEPEST} revisions are stacked"
        )
    return newest


def meant(name: str) -> Revision | None:
    """The revision to plan with, by digest or id; None for other text.

    Profiles with equal content share a digest, and each is its own intent: its owner, what extends it, whose pools
    follow it. Raises Invalid where the digest leaves open which profile is meant.
    """
    matches = list(Revision.objects.named(name).select_related("profile"))
    if len({revision.profile_id for revision in matches}) > 1:
        newest = {revision.profile_id: revision for revision in reversed(matches)}.values()
        named = ", ".join(f"{revision} is {revision.pk}" for revision in sorted(newest, key=lambda row: row.pk))
        raise Invalid(
            "Several profiles have a revision of this digest.",
            fields={"revision": [f"Name the one that you mean by its id: {named}."]},
        )
    return matches[0] if matches else None


def ancestry(revision: Revision) -> list[Revision]:
    """The revision and those it extends, nearest first. One query each; they are at most `DEEPEST`."""
    out = [revision]
    while (above := out[-1].extends) is not None:
        out.append(above)
    return out


def diff(a: Revision | None, b: Revision | Content) -> list[ContentDifference]:
    """List what `b` means that `a` does not."""
    return content_diff(a.flat if a else None, b.flat if isinstance(b, Revision) else b)


# ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────────────────
@transaction.atomic
def create(*, name: str, description: str = "", source: str = "", owner: str | None = None, by: User) -> Profile:
    """A new profile, with `source` as its draft. `owner`: a team's name. Raises Invalid, InvalidProfile, NotAllowed."""
    require(by, Role.OPERATOR, ANYWHERE, doing="create a profile")
    profile = _create(name, description, source, by)
    return set_owner(profile, owner=owner, by=by, version=profile.version) if owner else profile


@transaction.atomic
def set_owner(profile: Profile, *, owner: str | None, by: User, version: int) -> Profile:
    """Say which team, by its name, owns the profile; None: no team. Raises Invalid, NotAllowed, Stale, WrongState."""
    _require_giver(profile, by)
    refuse_library(profile)
    before = owners.shown(profile.owner_team)
    if (owner or None) == before and version == profile.version:
        return profile
    team = owners.team_id(owner)
    owners.hold(team)
    _put(profile, version, owner_team=team)
    record(
        by=by,
        action="profile.owner",
        target=f"profile:{profile.pk}",
        target_name=profile.name,
        before={"owner": before},
        after={"owner": owner or None},
    )
    hooks.owners_changed(by)
    return profile


@transaction.atomic
def change(profile: Profile, *, by: User, version: int, **changes: str | None) -> Profile:
    """Change `source` (the draft), `owner` (a team's name), or both, which count as two saves. Raises as each does."""
    if changes.get("source") and "owner" in changes:
        # The team before the row, as everywhere: a save locks the row.
        _require_giver(profile, by)
        if (changes["owner"] or None) != owners.shown(profile.owner_team):
            owners.hold(owners.team_id(changes["owner"]))
    if source := changes.get("source"):
        save_draft(profile, source=source, by=by, version=version)
    if "owner" in changes:
        set_owner(profile, owner=changes["owner"], by=by, version=profile.version if source else version)
    return profile


def _require_giver(profile: Profile, by: User) -> None:
    require(by, Role.ADMIN, GLOBAL, doing=f"say who owns {profile}")


def require_editor(profile: Profile, by: User, doing: str) -> None:
    """Raises NotAllowed."""
    require(by, Role.OPERATOR, ANYWHERE, doing=doing)
    owners.require(by, profile.owner_team, GLOBAL, doing)


def owned_by(team: int) -> list[str]:
    """Return the profiles of a team, a phrase each."""
    return [f"the profile {name}" for name in Profile.objects.filter(owner_team=team).values_list("name", flat=True)]


def refuse_library(profile: Profile) -> None:
    """Raises WrongState for what comes with the product."""
    if profile.is_library:
        raise WrongState(f"{profile} comes with Setpoint and changes with it; make a profile that extends {profile}.")


def check_name(name: str, description: str = "") -> None:
    """Check that a profile may have this name and description. Raises Invalid."""
    problems: dict[str, list[str]] = {}
    if name in RESERVED:
        problems["name"] = [f"{name} is a page's address; choose another."]
    elif not _NAME.fullmatch(name):
        problems["name"] = ["1 to 63 lower-case letters, digits and '-', beginning and ending with a letter or digit."]
    if len(description) > MAX_DESCRIPTION or not description.isprintable():
        problems["description"] = [f"One line of at most {MAX_DESCRIPTION} characters."]
    if problems:
        raise Invalid("A profile needs a name.", fields=problems)


def _create(name: str, description: str, source: str, by: User | None) -> Profile:
    check_name(name, description)
    checked = check(source, profile=Profile(name=name)) if source.strip() else None
    try:
        with transaction.atomic():  # savepoint: judge this one insert
            profile = Profile.objects.create(
                name=name,
                description=description or (checked.document.description if checked else ""),
                draft=source if checked else "",
                draft_author=by if checked else None,
                draft_authors=[by.pk] if by and checked else [],
                is_library=by is None,
            )
    except IntegrityError as error:
        raise Invalid(f"There is a profile {name} already.", fields={"name": ["Is taken."]}) from error
    record(
        by=by or LIBRARY,
        action="profile.create",
        target=f"profile:{profile.pk}",
        target_name=name,
        after={"name": name, "description": profile.description, "draft": profile.draft},
    )
    return profile


@transaction.atomic
def save_draft(profile: Profile, *, source: str, by: User, version: int) -> Profile:
    """Replace the draft; its saver becomes an author. An invalid document is refused, not kept.

    `version` is the one the writer read. Raises InvalidProfile, NotAllowed, Stale.
    """
    require_editor(profile, by, f"edit {profile}")
    refuse_library(profile)
    check(source, profile=profile)
    latest = profile.latest
    draft = "" if latest and latest.source == source else source
    authors = [*(a for a in profile.draft_authors if a != by.pk), by.pk] if draft else []
    before = profile.draft
    _put(profile, version, draft=draft, draft_author=by if draft else None, draft_authors=authors)
    record(
        by=by,
        action="profile.edit",
        target=f"profile:{profile.pk}",
        target_name=profile.name,
        before={"draft": before},
        after={"draft": draft},
    )
    return profile


@transaction.atomic
def discard_draft(profile: Profile, *, by: User, version: int) -> Profile:
    """Give up the draft. Raises NotAllowed, Stale, WrongState."""
    require_editor(profile, by, f"edit {profile}")
    if not profile.draft:
        raise WrongState(f"{profile} has no draft.")
    before = profile.draft
    _put(profile, version, draft="", draft_author=None, draft_authors=[])
    record(
        by=by,
        action="profile.discard",
        target=f"profile:{profile.pk}",
        target_name=profile.name,
        before={"draft": before},
        after={"draft": ""},
    )
    return profile


@transaction.atomic
def publish(profile: Profile, *, message: str = "", by: User, version: int) -> Revision:
    """Make the draft the next revision, for ever. Without a draft, the last text is taken again over its newest parent.

    `version` is the one the publisher read: no text is published unseen. Raises InvalidProfile, Invalid,
    NotAllowed, Stale, WrongState.
    """
    require_editor(profile, by, f"publish {profile}")
    refuse_library(profile)
    return _publish(profile, message, by, version)


def _publish(profile: Profile, message: str, by: User | None, version: int) -> Revision:
    if len(message) > MAX_MESSAGE or any(not (c.isprintable() or c == "\n") for c in message):
        raise Invalid(
            "The message cannot be kept.", fields={"message": [f"At most {MAX_MESSAGE} printable characters."]}
        )
    latest = profile.latest
    source = profile.draft or (latest.source if latest else "")
    if not source:
        raise WrongState(f"{profile} has no draft to publish.")
    number = latest.number + 1 if latest else 1
    draft = _judge(source, profile, f"{profile.name} r{number}")
    content = draft.checked.content
    if content.is_empty:
        raise Invalid("A revision must want something.", fields={"settings": ["There is nothing to publish."]})
    digest = schema.digest(content)
    if latest and latest.digest == digest:
        raise WrongState(f"Nothing would change: this means the same as {latest}.")
    authors = list(profile.draft_authors)
    if not profile.draft and latest:
        authors = [*latest.authors.values_list("pk", flat=True), *([by.pk] if by else [])]
    _put(
        profile,
        version,
        draft="",
        draft_author=None,
        draft_authors=[],
        description=draft.checked.document.description or profile.description,
    )
    revision = _insert(profile, number=number, digest=digest, source=source, draft=draft, message=message, by=by)
    revision.authors.set(User.objects.filter(pk__in=authors))
    record(
        by=by or LIBRARY,
        action="profile.publish",
        target=f"revision:{revision.pk}",
        target_name=str(revision),
        message=message,
        before={"digest": latest.digest, "content": latest.content} if latest else None,
        after={"digest": digest, "content": revision.content},
    )
    return revision


def _insert(
    profile: Profile, *, number: int, digest: str, source: str, draft: _CheckedDraft, message: str, by: User | None
) -> Revision:
    try:
        with transaction.atomic():  # savepoint: judge this one insert
            return Revision.objects.create(
                profile=profile,
                number=number,
                digest=digest,
                source=source,
                content=draft.checked.content.to_json(),
                extends=draft.parent,
                message=message,
                published_by=by,
            )
    except IntegrityError as error:  # one_revision_number
        raise WrongState(f"{profile} r{number} was published by another party just now.") from error


def _put(profile: Profile, version: int, **fields: object) -> None:
    """Change the row if it is still at `version`. Raises Stale."""
    fields |= {"version": version + 1, "updated_at": now()}
    as_read = Profile.objects.filter(pk=profile.pk, version=version, owner_team=profile.owner_team)
    if profile.version != version or not as_read.update(**fields):
        raise Stale(f"{profile} was changed since you read version {version}. Reload it and try again.")
    for name, value in fields.items():
        setattr(profile, name, value)


@transaction.atomic
def load(*, name: str, source: str, message: str) -> Revision | None:
    """Publish a library profile if it means something else than what is published already; None when it does not.

    Raises WrongState when people have a profile of this name, InvalidProfile when the library itself is wrong.
    """
    profile = Profile.objects.filter(name=name).first()
    if profile is None:
        profile = _create(name, "", source, None)
        return _publish(profile, message, None, profile.version)
    if not profile.is_library:
        raise WrongState(f"{name} is a profile of your own; the library's is left out. Rename yours to have both.")
    latest = profile.latest
    if latest and latest.digest == schema.digest(check(source, profile=profile).content):
        return None
    _put(profile, profile.version, draft=source)
    return _publish(profile, message, None, profile.version)
