"""REST: profiles. Rules are the services'; these classes only translate."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import QuerySet
from django.urls import reverse
from drf_spectacular.utils import extend_schema
from rest_framework import mixins
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.people import owners
from accounts.permissions import ANYWHERE, Role, require
from common.api import ApiViewSet, created, expected_version, with_etag
from common.bodies import without_body
from common.requests import UserApiRequest
from profiles.content.content import digest
from profiles.document.schema import Checked
from profiles.models import Profile, Revision
from profiles.services import editing, imports
from profiles.web import serializers


class ProfileFilter(django_filters.FilterSet):  # type: ignore[misc]
    owner = django_filters.CharFilter(method="of_owner", max_length=63, help_text="Name of the team that owns it.")

    class Meta:
        model = Profile
        fields = ["name", "is_library"]

    def of_owner(self, rows: QuerySet[Profile], name: str, value: str) -> QuerySet[Profile]:
        return rows.filter(owner_team=owners.team_id(value))


class Profiles(mixins.ListModelMixin, ApiViewSet):
    """Tuning intents. A draft is edited with If-Match and published as a revision."""

    request: UserApiRequest
    scope_for = {"GET": "read", "POST": "plan", "PATCH": "plan", "check": "read"}
    serializer_class = serializers.ProfileBrief
    ordering_fields = ("name", "created_at", "updated_at")
    filterset_class = ProfileFilter
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
        return dict(serializers.ProfileOut(profile, context=self.get_serializer_context()).data)

    @extend_schema(responses=serializers.ProfileOut)
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        profile = self.get_object()
        return with_etag(Response(self._answer(profile)), profile)

    @extend_schema(request=serializers.ProfileIn, responses={201: serializers.ProfileOut})
    def create(self, request: UserApiRequest) -> Response:
        body = serializers.ProfileIn(data=request.data)
        body.is_valid(raise_exception=True)
        profile = editing.create(**body.validated_data, by=request.user)
        return created(self._answer(profile), reverse("api-profile-detail", args=[profile.name]), profile)

    @extend_schema(request=serializers.DraftIn, responses=serializers.ProfileOut)
    def partial_update(self, request: UserApiRequest, name: str) -> Response:
        """Replace the draft, or the owner. An invalid document is refused and the draft stays as it was."""
        profile = self.get_object()
        body = serializers.DraftIn(data=request.data)
        body.is_valid(raise_exception=True)
        version = expected_version(request, profile)
        editing.change(profile, **body.validated_data, by=request.user, version=version)
        return with_etag(Response(self._answer(profile)), profile)

    @extend_schema(request=serializers.PublishIn, responses={201: serializers.RevisionOut})
    @action(detail=True, methods=["post"], url_path="actions/publish", url_name="publish")
    def publish(self, request: UserApiRequest, name: str) -> Response:
        """Make the draft the next revision, for ever."""
        profile = self.get_object()
        body = serializers.PublishIn(data=request.data)
        body.is_valid(raise_exception=True)
        version = expected_version(request, profile)
        revision = editing.publish(profile, **body.validated_data, by=request.user, version=version)
        return created(serializers.RevisionOut(revision).data, reverse("api-revision-detail", args=[revision.pk]))

    @extend_schema(request=None, responses=serializers.ProfileOut)
    @action(detail=True, methods=["post"], url_path="actions/discard", url_name="discard")
    @without_body
    def discard(self, request: UserApiRequest, name: str) -> Response:
        """Give up the draft."""
        profile = self.get_object()
        editing.discard_draft(profile, by=request.user, version=expected_version(request, profile))
        return with_etag(Response(self._answer(profile)), profile)

    @extend_schema(request=serializers.CheckIn, responses=serializers.CheckOut)
    @action(detail=True, methods=["post"], url_path="actions/check", url_name="check")
    def check(self, request: UserApiRequest, name: str) -> Response:
        """Return what a text would mean if it were published now. Stores nothing."""
        profile = self.get_object()
        body = serializers.CheckIn(data=request.data)
        body.is_valid(raise_exception=True)
        latest = profile.latest
        source = body.validated_data.get("source") or profile.draft or (latest.source if latest else "")
        return Response(_checked(editing.check(source, profile=profile), latest))

    @extend_schema(request=serializers.ImportIn, responses=serializers.ImportOut)
    @action(detail=False, methods=["post"], url_path="actions/import", url_name="import")
    def import_(self, request: UserApiRequest) -> Response:
        """Return the effect of importing this text under this name; with the answer's token, import it.

        Of another tool's file, `source` is the draft that is made of it, and `not_taken` names each line that is not
        in it.
        """
        body = serializers.ImportIn(data=request.data)
        body.is_valid(raise_exception=True)
        sent = {name: value for name, value in body.validated_data.items() if name != "token"}
        seen = imports.preview(**sent, by=request.user)
        token = body.validated_data.get("token")
        if token:
            imports.store(**sent, token=token, by=request.user)
        answer = {
            "name": seen.name,
            "format": seen.format.key,
            "source": seen.source,
            "not_taken": [entry.to_json() for entry in seen.not_taken],
            "would": seen.would,
            "token": seen.token,
            "is_stored": bool(token),
            "digest": digest(seen.checked.content),
            "warnings": serializers.NoteOut(seen.warnings, many=True).data,
            "changes": serializers.differences(list(seen.changes)),
        }
        return Response(answer)

    @extend_schema(responses=serializers.RevisionBrief(many=True))
    @action(detail=True, methods=["get"], pagination_class=ApiViewSet.pagination_class)
    def revisions(self, request: UserApiRequest, name: str) -> Response:
        """List the revisions of this profile, newest first."""
        profile = self.get_object()
        rows = profile.revisions.select_related("profile", "extends__profile", "published_by").order_by("-number")
        page = self.paginate_queryset(rows)
        return self.get_paginated_response(serializers.RevisionBrief(page, many=True).data)


def _checked(checked: Checked, latest: Revision | None) -> dict[str, Any]:
    content = checked.content
    return {
        "digest": digest(content),
        "content": content.to_json(),
        "worst_class": str(content.worst_class),
        "warnings": serializers.NoteOut(checked.warnings, many=True).data,
        "changes": serializers.differences(editing.diff(latest, content)),
    }
