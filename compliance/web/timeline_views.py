"""Timelines of clusters, nodes, pools and profiles: pages, their newest lines, and the same over REST."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.views.decorators.http import require_GET
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from accounts.models import User
from common import timeline
from common.api import ApiView
from common.requests import UserApiRequest, UserRequest
from common.timeline import Entry
from compliance.reports import timelines

MOST = 200


# ── pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@require_GET
@login_required
def cluster(request: UserRequest, pk: UUID) -> HttpResponse:
    return timelines.show(request, timelines.of_cluster(request.user, pk))


@require_GET
@login_required
def cluster_lately(request: UserRequest, pk: UUID) -> HttpResponse:
    return timelines.show_few(request, timelines.of_cluster(request.user, pk))


@require_GET
@login_required
def node(request: UserRequest, pk: int) -> HttpResponse:
    return timelines.show(request, timelines.of_node(request.user, pk))


@require_GET
@login_required
def node_lately(request: UserRequest, pk: int) -> HttpResponse:
    return timelines.show_few(request, timelines.of_node(request.user, pk))


@require_GET
@login_required
def pool(request: UserRequest, pk: int) -> HttpResponse:
    return timelines.show(request, timelines.of_pool(request.user, pk))


@require_GET
@login_required
def profile(request: UserRequest, name: str) -> HttpResponse:
    return timelines.show(request, timelines.of_profile(request.user, name))


# ── REST ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
class EntryOut(serializers.Serializer[Entry]):
    at = serializers.DateTimeField(source="place.at")
    what = serializers.ChoiceField(choices=timeline.WHAT)
    text = serializers.CharField(help_text="One sentence.")
    detail = serializers.CharField(help_text="Reason, or the comment given with it; may be empty.")
    by = serializers.CharField(help_text="Account that did it; empty where no person requested it.")
    on = serializers.CharField(help_text="The one node, or on a node the one setting, that it is about; may be empty.")
    href = serializers.CharField(source="url", help_text="The page that says more.")


class TimelineOut(serializers.Serializer[Any]):
    next = serializers.URLField(allow_null=True, help_text="The page of what was before; null at the beginning.")
    results = EntryOut(many=True)


PARAMETERS = [
    OpenApiParameter("limit", OpenApiTypes.INT, default=timelines.ROWS, description=f"Entries of a page, 1 to {MOST}."),
    OpenApiParameter("before", OpenApiTypes.STR, description="A place in the timeline, as `next` names it."),
    OpenApiParameter("what", OpenApiTypes.STR, enum=timeline.WHAT, description="Only entries of this kind."),
]


def described(operation_id: str) -> Callable[[type[TimelineView]], type[TimelineView]]:
    schema = extend_schema(operation_id=operation_id, parameters=PARAMETERS, responses=TimelineOut)
    return extend_schema_view(get=schema)


class TimelineView(ApiView):
    """Timeline of the object, newest first: edits, verdicts, rollouts and drift in one order, paged by key."""

    request: UserApiRequest
    scope_for = {"GET": "read"}

    def about(self, user: User, key: Any) -> timelines.About:
        """The object. Raises Http404, NotAllowed."""
        raise NotImplementedError

    def get(self, request: UserApiRequest, **named: Any) -> Response:
        params = request.query_params
        if unknown := sorted(set(params) - {"limit", "before", "what"}):
            raise ValidationError({unknown[0]: ["There is no such parameter; there are limit, before, what."]})
        limit = params.get("limit", str(timelines.ROWS))
        if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:6]) <= MOST):
            raise ValidationError({"limit": [f"A whole number between 1 and {MOST}."]})
        entries, following = timelines.read(
            self.about(request.user, next(iter(named.values()))),
            request.user,
            limit=int(limit),
            before=params.get("before", ""),
            only=params.get("what", ""),
        )
        url = replace_query_param(request.build_absolute_uri(), "before", following) if following else None
        return Response(TimelineOut({"next": url, "results": entries}).data)


@described("clusters_timeline")
class ClusterTimeline(TimelineView):
    def about(self, user: User, key: Any) -> timelines.About:
        return timelines.of_cluster(user, key)


@described("nodes_timeline")
class NodeTimeline(TimelineView):
    def about(self, user: User, key: Any) -> timelines.About:
        return timelines.of_node(user, key)


@described("pools_timeline")
class PoolTimeline(TimelineView):
    def about(self, user: User, key: Any) -> timelines.About:
        return timelines.of_pool(user, key)


@described("profiles_timeline")
class ProfileTimeline(TimelineView):
    def about(self, user: User, key: Any) -> timelines.About:
        return timelines.of_profile(user, key)
