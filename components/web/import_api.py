"""REST: a profile's draft from what a cluster runs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from clusters.reports import selectors
from common.api import ApiView
from common.bodies import without_body
from common.requests import UserApiRequest
from components.importer import importing


class InstalledOut(serializers.Serializer[Any]):
    namespace = serializers.CharField()
    release = serializers.CharField()
    chart = serializers.CharField(allow_blank=True)
    version = serializers.CharField(allow_blank=True)
    component = serializers.CharField(allow_blank=True, help_text="Of the catalog; empty: none.")
    presets = serializers.ListField(
        child=serializers.CharField(), help_text="Of the catalog, which the draft names instead of their values."
    )
    is_taken = serializers.BooleanField()
    asked = serializers.ListField(
        source="keys",
        child=serializers.CharField(),
        help_text="Passwords in plain text: the draft refers to a Secret for each.",
    )
    notes = serializers.ListField(child=serializers.CharField())
    why_not = serializers.CharField(allow_blank=True)


class DraftFromOut(serializers.Serializer[Any]):
    found = InstalledOut(many=True)
    source = serializers.CharField(  # type: ignore[assignment]  # DRF has an argument of the same name
        allow_blank=True, help_text="The draft as YAML; empty when nothing can be taken."
    )


class Installed(ApiView):
    """Releases that helm installed in a cluster."""

    scope_for = {"POST": "plan"}

    @extend_schema(operation_id="clusters_actions_draft_profile", request=None, responses=DraftFromOut)
    @without_body
    def post(self, request: UserApiRequest, pk: UUID) -> Response:
        """Read helm's records and answer the draft of a profile that wants the same. Stores nothing."""
        cluster = get_object_or_404(selectors.clusters_visible_to(request.user), pk=pk)
        return Response(DraftFromOut(importing.draft_profile(cluster, by=request.user)).data)
