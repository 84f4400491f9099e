"""REST: the site's own catalog entries, as YAML text."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.response import Response

from accounts.permissions import ANYWHERE, Role, require
from common import yaml
from common.api import ApiViewSet, created, expected_version, with_etag
from common.bodies import Body, without_body
from common.errors import Invalid, Missing
from common.requests import UserApiRequest
from components.catalog import catalog, site_entries
from components.helm.errors import HelmError
from components.importer import chart_draft
from components.models import SiteEntry


class SiteEntryOut(serializers.ModelSerializer[SiteEntry]):
    is_classified = serializers.BooleanField(help_text="False: it is untested, and its class is the strictest.")
    problem = serializers.SerializerMethodField(help_text="Why the catalog leaves it out; empty: it does not.")

    class Meta:
        model = SiteEntry
        fields = [
            "name", "text", "sha256", "is_classified", "classified_by", "classified_at", "problem", "version",
            "created_at", "changed_by", "changed_at",
        ]  # fmt: skip

    @extend_schema_field(serializers.CharField())
    def get_problem(self, row: SiteEntry) -> str:
        return catalog.installed().problems.get(row.name, "")


class SiteEntryIn(Body[Any]):
    text = serializers.CharField(
        trim_whitespace=False,
        max_length=yaml.MAX_BYTES,
        help_text="YAML as docs/components.md describes it, kept to the byte: what is exported is what was sent.",
    )


class DraftIn(Body[Any]):
    archive = serializers.CharField(max_length=64, help_text="The SHA-256 of a stored chart archive.")
    url = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=chart_draft.LONGEST_URL,
        help_text="The repository that has the chart; empty: the uploaded archive alone will do.",
    )


class DraftOut(serializers.Serializer[Any]):
    text = serializers.CharField(help_text="An entry that the schema accepts; nothing is stored.")
    notes = serializers.ListField(child=serializers.CharField(), help_text="What a person must complete, in words.")


class SiteEntries(mixins.ListModelMixin, ApiViewSet):
    """Catalog entries of the site's own: written by one administrator, classified by another."""

    request: UserApiRequest
    scope_for = {
        "GET": "read",
        "POST": "admin",
        "PATCH": "admin",
        "DELETE": "admin",
        "classify": "admin",
        "draft": "admin",
    }
    serializer_class = SiteEntryOut
    ordering_fields = ("name", "changed_at")
    filterset_fields = ["name"]
    lookup_field = "name"
    lookup_value_converter = "slug"
    is_versioned = True

    def get_queryset(self) -> QuerySet[SiteEntry]:
        if getattr(self, "swagger_fake_view", False):
            return SiteEntry.objects.none()
        require(self.request.user, Role.VIEWER, ANYWHERE, "see the catalog")
        return site_entries.known()

    @extend_schema(request=SiteEntryIn, responses={201: SiteEntryOut})
    def create(self, request: UserApiRequest) -> Response:
        """Add an entry. It is judged by the schema of the catalog's files, and is untested until it is classified."""
        site_entries.may_change(request.user)
        row = site_entries.create(self._text(request), by=request.user)
        return created(self._shown(row), f"/api/v1/site-entries/{row.pk}", row)

    @extend_schema(request=SiteEntryIn, responses=SiteEntryOut)
    def partial_update(self, request: UserApiRequest, name: str) -> Response:
        """Put another text in its place, which is untested again."""
        site_entries.may_change(request.user)
        row = self.get_object()
        version = expected_version(request, row)
        row = site_entries.update(row, self._text(request), by=request.user, version=version)
        return with_etag(Response(self._shown(row)), row)

    @extend_schema(responses={204: None})
    def destroy(self, request: UserApiRequest, name: str) -> Response:
        """Delete one that no target, plan, release or other entry needs."""
        site_entries.may_change(request.user)
        row = self.get_object()
        site_entries.delete(row, by=request.user, version=expected_version(request, row))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=None, responses=SiteEntryOut)
    @action(detail=True, methods=["post"], url_path="actions/classify", url_name="classify")
    @without_body
    def classify(self, request: UserApiRequest, name: str) -> Response:
        """Vouch for the classes that it states; not by an administrator who wrote it."""
        site_entries.may_change(request.user)
        row = self.get_object()
        row = site_entries.classify(row, by=request.user, version=expected_version(request, row))
        return with_etag(Response(self._shown(row)), row)

    @extend_schema(request=DraftIn, responses=DraftOut)
    @action(detail=False, methods=["post"], url_path="actions/draft", url_name="draft")
    def draft(self, request: UserApiRequest) -> Response:
        """Draft an entry from a stored chart archive, by rendering it. Nothing is stored."""
        site_entries.may_change(request.user)
        body = DraftIn(data=request.data)
        body.is_valid(raise_exception=True)
        given = body.validated_data
        try:
            made = chart_draft.from_archive(given["archive"], url=given.get("url", ""))
        except (HelmError, Missing) as error:
            raise Invalid(str(error), fields={"archive": [str(error)]}) from error
        return Response(DraftOut(made).data)

    def _text(self, request: UserApiRequest) -> str:
        body = SiteEntryIn(data=request.data)
        body.is_valid(raise_exception=True)
        return str(body.validated_data["text"])

    def _shown(self, row: SiteEntry) -> Any:
        with catalog.held(is_fresh=True):
            return self.get_serializer(row).data
