"""REST: all nodes of a filter at once. Look at the selection first; acting repeats its number and digest.

The filter is the text of the nodes page's query, or a saved filter of that page by its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from django.db.models import Q
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from accounts.models import SavedFilter, User
from clusters import tasks
from common.api import ApiView, accepted, created
from common.bodies import Body
from common.errors import Invalid
from common.requests import UserApiRequest
from jobs.planning import bulk
from jobs.tasks import wake_planning

MOST_TERMS = 20


class TargetOut(serializers.Serializer[Any]):
    pool = serializers.IntegerField(source="assignment.pool_id")
    pool_name = serializers.CharField(source="assignment.pool")
    revision = serializers.CharField(source="assignment.revision")
    chosen = serializers.IntegerField(help_text="How many of the selection's nodes the pool holds.")


class ClusterCountOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    nodes = serializers.IntegerField()


class SelectionOut(serializers.Serializer[Any]):
    query = serializers.CharField()
    count = serializers.IntegerField()
    digest = serializers.CharField(help_text="Of exactly these nodes, by UID; acting repeats it.")
    names = serializers.ListField(child=serializers.CharField(), help_text=f"The first {bulk.SHOWN}.")
    clusters = ClusterCountOut(many=True)
    targets = TargetOut(many=True, help_text="Pools with a target that hold some of them: a plan is made for each.")
    loose = serializers.IntegerField(help_text="Nodes in no such pool.")
    why_not = serializers.DictField(child=serializers.CharField(), help_text="By verb; empty: it may be done.")


class ConfirmedIn(Body[Any]):
    query = serializers.CharField(required=False, max_length=1000, help_text="As in the nodes page's URL.")
    filter = serializers.IntegerField(required=False, min_value=1, help_text="Or a saved filter's id.")
    count = serializers.IntegerField(min_value=1, help_text="As the selection said.")
    digest = serializers.CharField(max_length=64, help_text="As the selection said.")


class MadePlanOut(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    number = serializers.IntegerField()
    pool = serializers.IntegerField(source="pool_id")
    pool_name = serializers.CharField(source="pool")


class QueuedPlanOut(serializers.Serializer[Any]):
    id = serializers.UUIDField(help_text="See `plan-requests/<id>`.")
    pool = serializers.IntegerField(source="pool_id")
    pool_name = serializers.CharField(source="pool")


class LeftOut(serializers.Serializer[Any]):
    pool_name = serializers.CharField()
    why = serializers.CharField()


class PlansMadeOut(serializers.Serializer[Any]):
    plans = MadePlanOut(many=True)
    queued = QueuedPlanOut(many=True, help_text="Of pools with many nodes: a worker makes them.")
    left = LeftOut(many=True, help_text="Pools for which none was made, and why.")


class RefreshedOut(serializers.Serializer[Any]):
    clusters = serializers.ListField(child=serializers.UUIDField())


class NodeSelectionView(ApiView):
    """The nodes of a filter as of now, and what may be done to all of them."""

    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(
        responses=SelectionOut,
        operation_id="nodes_selection",
        parameters=[
            OpenApiParameter("query", str, description="As in the nodes page's URL, percent-encoded."),
            OpenApiParameter("filter", int, description="Or a saved filter's id."),
        ],
    )
    def get(self, request: UserApiRequest) -> Response:
        chosen = _select(request.user, request.query_params)
        clusters = [{"id": cluster.pk, "name": cluster.name, "nodes": nodes} for cluster, nodes in chosen.clusters]
        why_not = {verb: bulk.reason_not_to(verb, chosen, request.user) for verb in bulk.VERBS}
        fields = {name: getattr(chosen, name) for name in ("query", "count", "digest", "names", "targets", "loose")}
        return Response(SelectionOut({**fields, "clusters": clusters, "why_not": why_not}).data)


class PlanAllView(ApiView):
    """A draft plan to its own target for each pool that holds some of the nodes. Other nodes than confirmed: 409."""

    request: UserApiRequest
    scope_for = {"POST": "plan"}

    @extend_schema(request=ConfirmedIn, responses={201: PlansMadeOut}, operation_id="nodes_selection_plan")
    def post(self, request: UserApiRequest) -> Response:
        chosen, confirmed = _confirmed(request)
        done = bulk.plan_selection(chosen, **confirmed, by=request.user)
        if done.queued:
            wake_planning()
        left = [{"pool_name": pool, "why": why} for pool, why in done.left]
        return created(
            PlansMadeOut({"plans": done.plans, "queued": done.queued, "left": left}).data, "/api/v1/plans?status=draft"
        )


class RefreshAllView(ApiView):
    """Read the clusters of the nodes again. Other nodes than confirmed: 409."""

    request: UserApiRequest
    scope_for = {"POST": "apply"}

    @extend_schema(request=ConfirmedIn, responses={202: RefreshedOut}, operation_id="nodes_selection_refresh")
    def post(self, request: UserApiRequest) -> Response:
        chosen, confirmed = _confirmed(request)
        done = bulk.refresh_selection(chosen, **confirmed, by=request.user)
        for cluster in done.clusters:
            tasks.refresh.delay(str(cluster.pk))
        return accepted({"clusters": [str(cluster.pk) for cluster in done.clusters]}, "/api/v1/clusters")


def _confirmed(request: UserApiRequest) -> tuple[bulk.NodeSelection, dict[str, Any]]:
    """Return what is chosen now, and the count and digest that the caller saw. Raises Invalid."""
    wanted = ConfirmedIn(data=request.data)
    wanted.is_valid(raise_exception=True)
    given = wanted.validated_data
    return _select(request.user, given), {"count": given["count"], "digest": given["digest"]}


def _select(user: User, given: Mapping[str, Any]) -> bulk.NodeSelection:
    """Raises Invalid."""
    query, pk = str(given.get("query") or ""), given.get("filter")
    if bool(query) == bool(pk):
        why = ["Give a query or the id of a saved filter: one of the two."]
        raise Invalid("Which nodes?", fields={"query": why})
    if pk:
        query = _saved(user, str(pk)).query
    try:
        terms = dict(parse_qsl(query.lstrip("?"), strict_parsing=True, max_num_fields=MOST_TERMS))
    except ValueError as error:
        raise Invalid("This is not a query.", fields={"query": [str(error)[:200]]}) from error
    return bulk.select_nodes({name: value for name, value in terms.items() if name != "page"}, user)


def _saved(user: User, pk: str) -> SavedFilter:
    seen = Q(owner=user) | Q(is_shared=True, owner__is_active=True)
    number = int(pk) if pk.isascii() and pk.isdigit() and len(pk) < 10 else 0
    row = SavedFilter.objects.filter(seen, page="nodes", pk=number).first()
    if row is None:
        why = "There is none of nodes with this id that you may use; GET /api/v1/saved-filters lists yours."
        raise Invalid("Which nodes?", fields={"filter": [why]})
    return row
