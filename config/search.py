"""The search over all rooms: a box on every page, a page of its own, and the API. Rooms find; see `common.search`."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from common import hooks
from common.api import ApiView
from common.requests import UserApiRequest, UserRequest
from common.search import LONGEST, Needle, SearchGroup


def results(user: Any, text: str) -> list[SearchGroup]:
    """Return the results for this text, the kinds in their order; empty for no text. At most ten queries."""
    needle = Needle.of(text)
    groups = hooks.search(user, needle) if needle else []
    return sorted((group for group in groups if group.found), key=lambda group: group.order)


def _context(request: UserRequest) -> dict[str, Any]:
    text = request.GET.get("q", "")[:LONGEST].strip()
    return {"q": text, "groups": results(request.user, text)}


@require_GET
@login_required
def page(request: UserRequest) -> HttpResponse:
    return render(request, "search/page.html", _context(request))


@require_GET
@login_required
def fragment(request: UserRequest) -> HttpResponse:
    """Render the results under the box of the top bar, while the user types."""
    return render(request, "search/_found.html", _context(request))


class FoundOut(serializers.Serializer[Any]):
    id = serializers.CharField(help_text="As the kind's own list has it; of a setting, its key.")
    name = serializers.CharField()
    note = serializers.CharField(help_text="What tells it from others of that name.")
    page = serializers.CharField(source="href", help_text="The page about it, without the host.")


class HitsOut(serializers.Serializer[Any]):
    kind = serializers.ChoiceField(["node", "cluster", "profile", "plan", "rollout", "component", "setting"])
    results = FoundOut(source="found", many=True, help_text="At most eight.")
    more = serializers.CharField(help_text="The page that lists all of them; empty where there are no more.")


class SearchOut(serializers.Serializer[Any]):
    q = serializers.CharField()
    groups = HitsOut(many=True)


class Search(ApiView):
    """Nodes, clusters, profiles, plans, rollouts and settings by name, number or identifier."""

    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(
        operation_id="search",
        parameters=[
            OpenApiParameter(
                "q",
                str,
                required=True,
                description="How a node's name begins; part of another name; P-218 or R-131; the first eight or more "
                "digits of a UID, UUID or digest. At most 128 characters.",
            )
        ],
        responses=SearchOut,
    )
    def get(self, request: UserApiRequest) -> Response:
        if wrong := set(request.query_params) - {"q", "format"}:
            raise ValidationError({name: ["There is no such parameter; there is q."] for name in wrong})
        text = request.query_params.get("q", "").strip()
        if not 1 <= len(text) <= LONGEST:
            raise ValidationError({"q": [f"Between 1 and {LONGEST} characters."]})
        return Response(SearchOut({"q": text, "groups": results(request.user, text)}).data)
