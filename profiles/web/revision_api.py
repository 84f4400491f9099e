"""REST: revisions, how they differ, where they are used, and as other tools' files."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.permissions import ANYWHERE, Role, require
from common import hooks
from common.api import ApiViewSet
from common.errors import Invalid, Missing
from common.requests import UserApiRequest
from profiles import exports
from profiles.models import Revision
from profiles.services import editing
from profiles.web import serializers

_BY_NAME = OpenApiParameter("id", str, "path", description="Id or digest.")


class Revisions(mixins.ListModelMixin, ApiViewSet):
    """Published, for ever. Found by id, or by digest (`sha256:…`), which names the newest revision of that meaning."""

    request: UserApiRequest
    scope_for = {"GET": "read"}
    serializer_class = serializers.RevisionBrief
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

    @extend_schema(responses=serializers.RevisionOut, parameters=[_BY_NAME])
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return Response(serializers.RevisionOut(self._named(kwargs["pk"])).data)

    @extend_schema(
        responses=serializers.DifferenceOut(many=True),
        parameters=[
            _BY_NAME,
            OpenApiParameter("against", str, description="Id or digest; without it, the revision before."),
        ],
    )
    @action(detail=True, methods=["get"], pagination_class=None, filter_backends=[])
    def diff(self, request: UserApiRequest, pk: str) -> Response:
        """List what this revision means that the other does not."""
        revision = self._named(pk)
        against = request.query_params.get("against")
        before = self._named(against) if against else revision.previous
        return Response(serializers.differences(editing.diff(before, revision)))

    @extend_schema(responses=serializers.UseOut(many=True), parameters=[_BY_NAME])
    @action(detail=True, methods=["get"], pagination_class=None, filter_backends=[])
    def uses(self, request: UserApiRequest, pk: str) -> Response:
        """Pools that have it as their target, and plans for it, as far as you may see them; the newest hundred each."""
        uses = hooks.revision_uses(request.user, [self._named(pk).pk])
        return Response(serializers.UseOut(uses, many=True).data)

    @extend_schema(
        responses=serializers.ExportOut,
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
        exported = exports.export(
            revision.flat,
            to,
            name=revision.profile.name,
            revision=str(revision),
            digest=revision.digest,
            is_fixed=fixed == "true",
        )
        return Response(serializers.ExportOut(exported).data)
