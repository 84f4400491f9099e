"""REST of approval rules, over the same services and selectors as the pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins
from rest_framework.response import Response

from accounts.people.pending import Proposed
from accounts.permissions import restrict
from accounts.web.pending_api import PendingChangeOut, proposed
from clusters.models import Cluster
from common.api import ApiViewSet, created, expected_version, with_etag
from common.errors import Invalid
from common.requests import UserApiRequest
from jobs.approvals import rulebook
from jobs.models import ApprovalRule
from jobs.reports import selectors
from jobs.web import rule_serializers
from jobs.web.request_bodies import read_body


class RuleViewSet(mixins.ListModelMixin, ApiViewSet):
    """Approval rules. All that fit a plan apply, so adding one never makes approval easier."""

    request: UserApiRequest
    queryset = ApprovalRule.objects.none()
    serializer_class = rule_serializers.RuleOut
    lookup_value_converter = "int"
    ordering_fields = ("name", "approvers", "changed_at")
    is_versioned = True
    scope_for = {"GET": "read", "create": "admin", "partial_update": "admin", "destroy": "admin"}

    def get_queryset(self) -> QuerySet[ApprovalRule]:
        return selectors.visible_rules(self.request.user)

    @extend_schema(request=rule_serializers.RuleIn, responses={201: rule_serializers.RuleOut})
    def create(self, request: UserApiRequest) -> Response:
        row = rulebook.create(by=request.user, **self._wanted(read_body(rule_serializers.RuleIn, request)))
        return created(rule_serializers.RuleOut(row).data, f"/api/v1/approval-rules/{row.pk}", row)

    @extend_schema(
        request=rule_serializers.RuleIn(partial=True), responses={200: rule_serializers.RuleOut, 202: PendingChangeOut}
    )
    def partial_update(self, request: UserApiRequest, pk: object) -> Response:
        """202: what would ask for less waits for a second administrator's consent."""
        row = self.get_object()
        version = expected_version(request, row)
        form = rule_serializers.RuleIn(data=request.data, partial=True)
        form.is_valid(raise_exception=True)
        done = rulebook.change(row, by=request.user, version=version, **self._wanted(form.validated_data))
        if isinstance(done, Proposed):
            return proposed(done)
        row = done
        return with_etag(Response(rule_serializers.RuleOut(row).data), row)

    @extend_schema(responses={202: PendingChangeOut, 204: None})
    def destroy(self, request: UserApiRequest, pk: object) -> Response:
        """202: a rule that holds is deleted only with a second administrator's consent."""
        row = self.get_object()
        done = rulebook.delete(row, by=request.user, version=expected_version(request, row))
        return proposed(done) if isinstance(done, Proposed) else Response(status=204)

    def _wanted(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The cluster as an object. Raises Invalid."""
        out = dict(fields)
        if out.get("cluster") is not None:
            out["cluster"] = (
                restrict(Cluster.objects.all(), self.request.user, prefix="").filter(pk=out["cluster"]).first()
            )
            if out["cluster"] is None:
                raise Invalid(
                    "The rule is not valid.", fields={"cluster": ["It does not exist, or is outside your permissions."]}
                )
        return out
