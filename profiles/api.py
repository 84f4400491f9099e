"""REST: profiles and their revisions. Rules are the services'; these classes only translate."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field, extend_schema_serializer
from rest_framework import mixins, serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.permissions import ANYWHERE, Role, may, require
from common import hooks
from common.api import ApiViewSet, created, expected_version, with_etag
from common.errors import Invalid, Missing
from common.requests import UserApiRequest
from contract.keys import ApplyClass
from profiles import exports, imports, services
from profiles.content import Difference, digest
from profiles.models import Profile, Revision
from profiles.schema import Checked


def possible(profile: Profile) -> list[str]:
    """What the state of this profile permits."""
    if profile.is_library:
        return ["check"]
    drafted = ["publish", "discard"] if profile.draft else []
    return ["check", "edit", *drafted] if drafted or not profile.latest else ["check", "edit", "publish"]


def permitted(user: Any) -> list[str]:
    """What this caller may do to any profile."""
    editor = ["edit", "publish", "discard"] if may(user, Role.OPERATOR, ANYWHERE) else []
    return ["check", *editor]


# ── What goes out ─────────────────────────────────────────────────────────────────────────────────────────────────────
class NoteOut(serializers.Serializer[Any]):
    path = serializers.CharField()
    line = serializers.IntegerField()
    code = serializers.CharField()
    message = serializers.CharField()


class DifferenceOut(serializers.Serializer[Difference]):
    part = serializers.ChoiceField(["settings", "labels", "annotations", "taints"])
    key = serializers.CharField()
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
    authors = serializers.SerializerMethodField(help_text="Nobody of these may approve a plan for this revision.")
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

    class Meta:
        model = Profile
        fields = [
            "name", "description", "is_library", "has_draft", "latest", "latest_digest", "revision_count", "version",
            "created_at", "updated_at",
        ]  # fmt: skip

    def get_has_draft(self, profile: Profile) -> bool:
        return bool(profile.draft)

    @extend_schema_field(serializers.IntegerField(allow_null=True))
    def get_latest(self, profile: Any) -> int | None:
        number: int | None = profile.newest_number
        return number


class ProfileOut(serializers.ModelSerializer[Profile]):
    latest = RevisionBrief(read_only=True, allow_null=True)
    draft_author = serializers.StringRelatedField[Any](read_only=True, allow_null=True)
    actions = serializers.SerializerMethodField(help_text="What its state permits.")
    permissions = serializers.SerializerMethodField(help_text="What you may do.")

    class Meta:
        model = Profile
        fields = [
            "name", "description", "is_library", "draft", "draft_author", "latest", "version", "created_at",
            "updated_at", "actions", "permissions",
        ]  # fmt: skip

    def get_actions(self, profile: Profile) -> list[str]:
        return possible(profile)

    def get_permissions(self, profile: Profile) -> list[str]:
        return permitted(self.context["request"].user)


@extend_schema_serializer(component_name="ProfileCheck")
class CheckOut(serializers.Serializer[Any]):
    digest = serializers.CharField()
    content = serializers.JSONField(help_text="Flattened: settings, labels, annotations, taints, with their origins.")
    worst_class = serializers.ChoiceField([str(c) for c in ApplyClass])
    warnings = NoteOut(many=True)
    changes = DifferenceOut(many=True, help_text="Against the newest revision.")


class MissingOut(serializers.Serializer[Any]):
    part = serializers.ChoiceField(["settings", "labels", "annotations", "taints"])
    key = serializers.CharField()
    wanted = serializers.CharField()
    why = serializers.CharField()


class ExportOut(serializers.Serializer[Any]):
    format = serializers.ChoiceField(list(exports.FORMATS), source="format.key")
    title = serializers.CharField(source="format.title")
    filename = serializers.CharField()
    media_type = serializers.CharField(source="format.media_type")
    remarks = serializers.ListField(child=serializers.CharField(), help_text="What whoever applies the file must know.")
    text = serializers.CharField()
    missing = MissingOut(many=True, help_text="What the revision wants and this file does not carry.")


class UseOut(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(["assignment", "plan"])
    id = serializers.CharField(help_text="Of the pool, or of the plan.")
    name = serializers.CharField()
    status = serializers.CharField()
    at = serializers.DateTimeField()


class ImportOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    would = serializers.ChoiceField([imports.CREATE, imports.REPLACE, imports.NOTHING])
    token = serializers.CharField(help_text="Send it back to store exactly this.")
    is_stored = serializers.BooleanField()
    digest = serializers.CharField()
    warnings = NoteOut(many=True)
    changes = DifferenceOut(many=True, help_text="Against the newest revision of that name.")


# ── What comes in ─────────────────────────────────────────────────────────────────────────────────────────────────────
def _source(help_text: str = "YAML.", **options: Any) -> serializers.CharField:
    return serializers.CharField(max_length=services.MAX_SOURCE, trim_whitespace=False, help_text=help_text, **options)


class ProfileIn(serializers.Serializer[Profile]):
    name = serializers.CharField(max_length=63)
    description = serializers.CharField(required=False, allow_blank=True, max_length=services.MAX_DESCRIPTION)
    source = _source(required=False, allow_blank=True)  # type: ignore[assignment]


class DraftIn(serializers.Serializer[Profile]):
    source = _source()  # type: ignore[assignment]


class PublishIn(serializers.Serializer[Revision]):
    message = serializers.CharField(required=False, allow_blank=True, max_length=services.MAX_MESSAGE)


class ImportIn(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=63)
    source = _source()  # type: ignore[assignment]
    token = serializers.CharField(
        required=False, max_length=64, help_text="Of a preview of the same; without it nothing is stored."
    )


class CheckIn(serializers.Serializer[Any]):
    source = _source("Without it the draft, or the newest revision's text, is checked.", required=False)  # type: ignore[assignment]


# ── Views ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
class Profiles(mixins.ListModelMixin, ApiViewSet):
    """Tuning intents. A draft is edited with If-Match and published as a revision."""

    request: UserApiRequest
    scope_for = {"GET": "read", "POST": "plan", "PATCH": "plan", "check": "read"}
    serializer_class = ProfileBrief
    ordering_fields = ("name", "created_at", "updated_at")
    filterset_fields = ["name", "is_library"]
    lookup_field = "name"
    lookup_value_converter = "slug"
    is_versioned = True

    def get_queryset(self) -> QuerySet[Profile]:
        if getattr(self, "swagger_fake_view", False):
            return Profile.objects.none()
        require(self.request.user, Role.VIEWER, ANYWHERE, "see profiles")
        if self.action == "list":
            return Profile.objects.with_newest().order_by("name")
        return Profile.objects.select_related("draft_author")

    def _answer(self, profile: Profile) -> dict[str, Any]:
        return dict(ProfileOut(profile, context=self.get_serializer_context()).data)

    @extend_schema(responses=ProfileOut)
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        profile = self.get_object()
        return with_etag(Response(self._answer(profile)), profile)

    @extend_schema(request=ProfileIn, responses={201: ProfileOut})
    def create(self, request: UserApiRequest) -> Response:
        wanted = ProfileIn(data=request.data)
        wanted.is_valid(raise_exception=True)
        profile = services.create(**wanted.validated_data, by=request.user)
        return created(self._answer(profile), reverse("api-profile-detail", args=[profile.name]), profile)

    @extend_schema(request=DraftIn, responses=ProfileOut)
    def partial_update(self, request: UserApiRequest, name: str) -> Response:
        """Replace the draft. An invalid document is refused and the draft stays as it was."""
        profile = self.get_object()
        wanted = DraftIn(data=request.data)
        wanted.is_valid(raise_exception=True)
        version = expected_version(request, profile)
        services.save_draft(profile, **wanted.validated_data, by=request.user, version=version)
        return with_etag(Response(self._answer(profile)), profile)

    @extend_schema(request=PublishIn, responses={201: RevisionOut})
    @action(detail=True, methods=["post"], url_path="actions/publish", url_name="publish")
    def publish(self, request: UserApiRequest, name: str) -> Response:
        """Make the draft the next revision, for ever."""
        profile = self.get_object()
        wanted = PublishIn(data=request.data)
        wanted.is_valid(raise_exception=True)
        version = expected_version(request, profile)
        revision = services.publish(profile, **wanted.validated_data, by=request.user, version=version)
        return created(RevisionOut(revision).data, reverse("api-revision-detail", args=[revision.pk]))

    @extend_schema(request=None, responses=ProfileOut)
    @action(detail=True, methods=["post"], url_path="actions/discard", url_name="discard")
    def discard(self, request: UserApiRequest, name: str) -> Response:
        """Give up the draft."""
        profile = self.get_object()
        services.discard_draft(profile, by=request.user, version=expected_version(request, profile))
        return with_etag(Response(self._answer(profile)), profile)

    @extend_schema(request=CheckIn, responses=CheckOut)
    @action(detail=True, methods=["post"], url_path="actions/check", url_name="check")
    def check(self, request: UserApiRequest, name: str) -> Response:
        """What a text would mean if it were published now. Stores nothing."""
        profile = self.get_object()
        wanted = CheckIn(data=request.data)
        wanted.is_valid(raise_exception=True)
        latest = profile.latest
        source = wanted.validated_data.get("source") or profile.draft or (latest.source if latest else "")
        return Response(_checked(services.check(source, profile=profile), latest))

    @extend_schema(request=ImportIn, responses=ImportOut)
    @action(detail=False, methods=["post"], url_path="actions/import", url_name="import")
    def import_(self, request: UserApiRequest) -> Response:
        """What bringing this text in under this name would do; with the answer's token it is done."""
        wanted = ImportIn(data=request.data)
        wanted.is_valid(raise_exception=True)
        name, source = wanted.validated_data["name"], wanted.validated_data["source"]
        seen = imports.preview(name=name, source=source, by=request.user)
        token = wanted.validated_data.get("token")
        if token:
            imports.store(name=name, source=source, token=token, by=request.user)
        answer = {
            "name": name,
            "would": seen.would,
            "token": seen.token,
            "is_stored": bool(token),
            "digest": digest(seen.checked.content),
            "warnings": NoteOut(seen.warnings, many=True).data,
            "changes": _differences(list(seen.changes)),
        }
        return Response(answer)

    @extend_schema(responses=RevisionBrief(many=True))
    @action(detail=True, methods=["get"], pagination_class=ApiViewSet.pagination_class)
    def revisions(self, request: UserApiRequest, name: str) -> Response:
        """Of this profile, newest first."""
        profile = self.get_object()
        rows = profile.revisions.select_related("profile", "extends__profile", "published_by").order_by("-number")
        page = self.paginate_queryset(rows)
        return self.get_paginated_response(RevisionBrief(page, many=True).data)


def _differences(found: list[Difference]) -> Any:
    return DifferenceOut(found, many=True).data  # type: ignore[arg-type]  # the stubs forget many=True


def _checked(checked: Checked, latest: Revision | None) -> dict[str, Any]:
    content = checked.content
    return {
        "digest": digest(content),
        "content": content.to_json(),
        "worst_class": str(content.worst_class),
        "warnings": NoteOut(checked.warnings, many=True).data,
        "changes": _differences(services.diff(latest, content)),
    }


_BY_NAME = OpenApiParameter("id", str, "path", description="Id or digest.")


class Revisions(mixins.ListModelMixin, ApiViewSet):
    """Published, for ever. Found by id, or by digest (`sha256:…`), which names the newest revision of that meaning."""

    request: UserApiRequest
    scope_for = {"GET": "read"}
    serializer_class = RevisionBrief
    ordering_fields = ("published_at", "number")
    filterset_fields = ["digest", "profile__name"]
    lookup_value_converter = "str"

    def get_queryset(self) -> QuerySet[Revision]:
        if getattr(self, "swagger_fake_view", False):
            return Revision.objects.none()
        require(self.request.user, Role.VIEWER, ANYWHERE, "see profiles")
        return Revision.objects.select_related("profile", "extends__profile", "published_by").order_by("-pk")

    def _named(self, name: str) -> Revision:
        self.get_queryset()  # for its permission
        revision = Revision.objects.named(name).select_related("profile", "extends__profile", "published_by").first()
        if revision is None:
            raise Missing(f"There is no revision {name[:80]}.")
        return revision

    @extend_schema(responses=RevisionOut, parameters=[OpenApiParameter("id", str, "path", description="Id or digest.")])
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return Response(RevisionOut(self._named(kwargs["pk"])).data)

    @extend_schema(
        responses=DifferenceOut(many=True),
        parameters=[
            OpenApiParameter("id", str, "path", description="Id or digest."),
            OpenApiParameter("against", str, description="Id or digest; without it, the revision before."),
        ],
    )
    @action(detail=True, methods=["get"], pagination_class=None, filter_backends=[])
    def diff(self, request: UserApiRequest, pk: str) -> Response:
        """What this revision means that the other does not."""
        revision = self._named(pk)
        against = request.query_params.get("against")
        before = self._named(against) if against else revision.previous
        return Response(_differences(services.diff(before, revision)))

    @extend_schema(responses=UseOut(many=True), parameters=[_BY_NAME])
    @action(detail=True, methods=["get"], pagination_class=None, filter_backends=[])
    def uses(self, request: UserApiRequest, pk: str) -> Response:
        """Pools that have it as their target, and plans for it, as far as you may see them; the newest hundred each."""
        found = hooks.revision_uses(request.user, [self._named(pk).pk])
        return Response(UseOut(found, many=True).data)  # type: ignore[arg-type]  # the stubs forget many=True

    @extend_schema(
        responses=ExportOut,
        parameters=[
            _BY_NAME,
            OpenApiParameter("to", str, "path", enum=list(exports.FORMATS)),
            OpenApiParameter(
                "fixed", bool, description="Write >= and <= as plain values where there is no word for them."
            ),
        ],
    )
    @action(detail=True, methods=["get"], url_path="exports/<str:to>", pagination_class=None, filter_backends=[])
    def exports(self, request: UserApiRequest, pk: str, to: str) -> Response:
        """This revision as another tool's file, and what that file could not express."""
        revision = self._named(pk)
        if to not in exports.FORMATS:
            raise Missing(f"There is no format {to[:40]}; there are {', '.join(exports.FORMATS)}.")
        fixed = request.query_params.get("fixed", "false")
        if fixed not in ("true", "false"):
            raise Invalid("The query is not valid.", fields={"fixed": ["Write true or false."]})
        found = exports.export(
            revision.flat,
            to,
            name=revision.profile.name,
            revision=str(revision),
            digest=revision.digest,
            is_fixed=fixed == "true",
        )
        return Response(ExportOut(found).data)
