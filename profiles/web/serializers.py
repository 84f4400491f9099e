"""REST: what goes out of profiles and their revisions, and what comes in."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field, extend_schema_serializer
from rest_framework import serializers

from accounts.people import owners
from accounts.permissions import ANYWHERE, GLOBAL, Role, may
from common.bodies import Body
from contract.keys import ApplyClass
from profiles import exports
from profiles.content.content import PARTS, ContentDifference
from profiles.imports import formats
from profiles.models import Profile, Revision
from profiles.services import editing, imports


def possible(profile: Profile) -> list[str]:
    """List the actions that the state of this profile permits."""
    if profile.is_library:
        return ["check"]
    drafted = ["publish", "discard"] if profile.draft else []
    ways = ["check", "edit", *drafted] if drafted or not profile.latest else ["check", "edit", "publish"]
    return [*ways, "change_owner"]


def permitted(profile: Profile, user: Any) -> list[str]:
    """List the actions that this caller may take on this profile."""
    is_editor = may(user, Role.OPERATOR, ANYWHERE) and not owners.reason_against(user, profile.owner_team, GLOBAL)
    may_give = not profile.is_library and may(user, Role.ADMIN, GLOBAL)
    return ["check", *(["edit", "publish", "discard"] if is_editor else []), *(["change_owner"] if may_give else [])]


OWNER = "Name of the team that owns it; null: none."


# ── What goes out ─────────────────────────────────────────────────────────────────────────────────────────────────────
class NoteOut(serializers.Serializer[Any]):
    path = serializers.CharField()
    line = serializers.IntegerField()
    code = serializers.CharField()
    message = serializers.CharField()


class DifferenceOut(serializers.Serializer[ContentDifference]):
    part = serializers.ChoiceField(PARTS)
    key = serializers.CharField(help_text="Of components and policy objects also what is inside them.")
    before = serializers.CharField(allow_null=True)
    after = serializers.CharField(allow_null=True)
    change = serializers.ChoiceField(["added", "changed", "removed"])
    apply_class = serializers.CharField()


class RevisionBrief(serializers.ModelSerializer[Revision]):
    name = serializers.CharField(read_only=True)
    profile: Any = serializers.SlugRelatedField(slug_field="name", read_only=True)
    extends = serializers.StringRelatedField[Revision](
        read_only=True, allow_null=True, help_text="`gpu-baseline r3`, or null."
    )
    published_by = serializers.StringRelatedField[Any](read_only=True, allow_null=True)

    class Meta:
        model = Revision
        fields = ["id", "name", "profile", "number", "digest", "extends", "message", "published_by", "published_at"]


class RevisionOut(RevisionBrief):
    authors = serializers.SerializerMethodField(help_text="None of these may approve a plan for this revision.")
    worst_class = serializers.SerializerMethodField()

    class Meta(RevisionBrief.Meta):
        fields = [*RevisionBrief.Meta.fields, "authors", "worst_class", "source", "content"]

    def get_authors(self, revision: Revision) -> list[str]:
        return [str(person) for person in revision.authors.all()]

    def get_worst_class(self, revision: Revision) -> str:
        return str(revision.flat.worst_class)


class ProfileBrief(serializers.ModelSerializer[Profile]):
    has_draft = serializers.SerializerMethodField()
    latest = serializers.SerializerMethodField(help_text="Number of the newest revision, or null.")
    latest_digest = serializers.CharField(source="newest_digest", read_only=True, allow_null=True)
    revision_count = serializers.IntegerField(read_only=True)
    owner = serializers.SerializerMethodField(help_text=OWNER)

    class Meta:
        model = Profile
        fields = [
            "name", "description", "owner", "is_library", "has_draft", "latest", "latest_digest", "revision_count",
            "version", "created_at", "updated_at",
        ]  # fmt: skip

    def get_owner(self, profile: Profile) -> str | None:
        return owners.shown(profile.owner_team, self.context)

    def get_has_draft(self, profile: Profile) -> bool:
        return bool(profile.draft)

    @extend_schema_field(serializers.IntegerField(allow_null=True))
    def get_latest(self, profile: Any) -> int | None:
        number: int | None = profile.newest_number
        return number


class ProfileOut(serializers.ModelSerializer[Profile]):
    latest = RevisionBrief(read_only=True, allow_null=True)
    draft_author = serializers.StringRelatedField[Any](read_only=True, allow_null=True)
    owner = serializers.SerializerMethodField(help_text=OWNER)
    actions = serializers.SerializerMethodField(help_text="What its state permits.")
    permissions = serializers.SerializerMethodField(help_text="What you may do.")

    class Meta:
        model = Profile
        fields = [
            "name", "description", "owner", "is_library", "draft", "draft_author", "latest", "version", "created_at",
            "updated_at", "actions", "permissions",
        ]  # fmt: skip

    def get_owner(self, profile: Profile) -> str | None:
        return owners.shown(profile.owner_team, self.context)

    def get_actions(self, profile: Profile) -> list[str]:
        return possible(profile)

    def get_permissions(self, profile: Profile) -> list[str]:
        return permitted(profile, self.context["request"].user)


@extend_schema_serializer(component_name="ProfileCheck")
class CheckOut(serializers.Serializer[Any]):
    digest = serializers.CharField()
    content = serializers.JSONField(
        help_text="Flattened: settings, labels, annotations, taints, components, policies, each with its origin."
    )
    worst_class = serializers.ChoiceField([str(c) for c in ApplyClass])
    warnings = NoteOut(many=True)
    changes = DifferenceOut(many=True, help_text="Against the newest revision.")


class MissingOut(serializers.Serializer[Any]):
    part = serializers.ChoiceField(PARTS)
    key = serializers.CharField()
    wanted = serializers.CharField()
    why = serializers.CharField()


class ExportOut(serializers.Serializer[Any]):
    format = serializers.ChoiceField(list(exports.FORMATS), source="format.key")
    title = serializers.CharField(source="format.title")
    filename = serializers.CharField()
    media_type = serializers.CharField(source="format.media_type")
    remarks = serializers.ListField(child=serializers.CharField(), help_text="What to know before applying the file.")
    text = serializers.CharField()
    missing = MissingOut(many=True, help_text="What the revision wants and this file does not carry.")


class UseOut(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(["assignment", "plan"])
    id = serializers.CharField(help_text="Of the pool, or of the plan.")
    name = serializers.CharField()
    status = serializers.CharField()
    at = serializers.DateTimeField()


class LineNotTakenOut(serializers.Serializer[Any]):
    line = serializers.IntegerField(help_text="Of the text that was sent, counted from 1.")
    text = serializers.CharField()
    reason = serializers.CharField()


class ImportOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    format = serializers.ChoiceField(list(formats.FORMATS), help_text="What the text was read as.")
    source = serializers.CharField(help_text="The profile, in YAML, that is stored with the token.")  # type: ignore[assignment]
    not_taken = LineNotTakenOut(many=True, help_text="Lines of another tool's file that are not in it.")
    would = serializers.ChoiceField([imports.CREATE, imports.REPLACE, imports.NOTHING])
    token = serializers.CharField(help_text="Send it back to store exactly this.")
    is_stored = serializers.BooleanField()
    digest = serializers.CharField()
    warnings = NoteOut(many=True)
    changes = DifferenceOut(many=True, help_text="Against the newest revision of that name.")


# ── What comes in ─────────────────────────────────────────────────────────────────────────────────────────────────────
def _source(help_text: str = "YAML.", **options: Any) -> serializers.CharField:
    return serializers.CharField(max_length=editing.MAX_SOURCE, trim_whitespace=False, help_text=help_text, **options)


def _owner() -> serializers.CharField:
    words = "Name of the team that owns it; null: none. Takes an administrator of all clusters."
    return serializers.CharField(required=False, allow_null=True, max_length=63, help_text=words)


class ProfileIn(Body[Profile]):
    name = serializers.CharField(max_length=63)
    description = serializers.CharField(required=False, allow_blank=True, max_length=editing.MAX_DESCRIPTION)
    source = _source(required=False, allow_blank=True)  # type: ignore[assignment]
    owner = _owner()


class DraftIn(Body[Profile]):
    """The draft, the owner, or both."""

    source = _source(required=False)  # type: ignore[assignment]
    owner = _owner()

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs:
            raise serializers.ValidationError({"source": ["Write source, owner, or both."]})
        return attrs


class PublishIn(Body[Revision]):
    message = serializers.CharField(required=False, allow_blank=True, max_length=editing.MAX_MESSAGE)


class ImportIn(Body[Any]):
    name = serializers.CharField(max_length=63)
    format = serializers.ChoiceField(
        [formats.AUTOMATIC, *formats.FORMATS],
        required=False,
        help_text="Of the text; auto recognizes it. Without it, a profile is expected.",
    )
    source = _source()  # type: ignore[assignment]
    token = serializers.CharField(
        required=False, max_length=64, help_text="Of a preview of the same; without it nothing is stored."
    )


class CheckIn(Body[Any]):
    source = _source("Without it the draft, or the newest revision's text, is checked.", required=False)  # type: ignore[assignment]


def differences(rows: list[ContentDifference]) -> Any:
    return DifferenceOut(rows, many=True).data  # type: ignore[arg-type]  # the stubs forget many=True
