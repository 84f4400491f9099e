"""REST of the approval policy, over the same services as the pages."""

from __future__ import annotations

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins
from rest_framework.decorators import action
from rest_framework.response import Response

from accounts.permissions import GLOBAL, require_person
from common.api import ApiViewSet, created
from common.bodies import without_body
from common.errors import Missing
from common.requests import UserApiRequest
from jobs.approvals import policybook, rules_as_policy
from jobs.models import PolicyVersion
from jobs.policy import judgement
from jobs.reports import policy_trial
from jobs.web.policy.serializers import PolicyIn, PolicyTextIn, PolicyVersionOut, RulesAsPolicyOut, TrialOut
from jobs.web.request_bodies import read_body


class PolicyVersionViewSet(mixins.ListModelMixin, ApiViewSet):
    """Versions of the approval policy. At most one is active; a version judges nothing before it is activated."""

    request: UserApiRequest
    queryset = PolicyVersion.objects.none()
    serializer_class = PolicyVersionOut
    lookup_field = "number"
    lookup_value_converter = "int"
    ordering_fields = ("number", "proposed_at")
    scope_for = {
        "GET": "read", "from_rules": "admin", "create": "admin", "test": "admin", "activate": "approve",
        "withdraw": "admin",
    }  # fmt: skip

    def get_queryset(self) -> QuerySet[PolicyVersion]:
        return PolicyVersion.objects.select_related("proposed_by", "activated_by")

    @extend_schema(request=PolicyIn, responses={201: PolicyVersionOut})
    def create(self, request: UserApiRequest) -> Response:
        """Propose a version. Another administrator activates it."""
        row, _ = policybook.propose(by=request.user, **read_body(PolicyIn, request))
        return created(PolicyVersionOut(row).data, f"/api/v1/policy-versions/{row.number}")

    @extend_schema(responses=PolicyVersionOut)
    @action(detail=False, methods=["get"], pagination_class=None)
    def active(self, request: UserApiRequest) -> Response:
        """The version that judges plans now; 404 while none was ever activated."""
        row = judgement.active_version()
        if row is None:
            raise Missing("No policy version was activated yet.")
        return Response(PolicyVersionOut(row).data)

    @extend_schema(responses=RulesAsPolicyOut)
    @action(detail=False, methods=["get"], pagination_class=None, url_path="from-rules", url_name="from-rules")
    def from_rules(self, request: UserApiRequest) -> Response:
        """The approval rules of today as a policy, compared with them on the stored plans. Nothing is stored."""
        require_person(request.user, "admin", GLOBAL, doing="write the approval rules as a policy")
        return Response(RulesAsPolicyOut(rules_as_policy.policy_from_rules()).data)

    @extend_schema(request=PolicyTextIn, responses=TrialOut)
    @action(detail=False, methods=["post"], url_path="actions/test", url_name="test")
    def test(self, request: UserApiRequest) -> Response:
        """Judge all plans that you can see by a text. Nothing is stored."""
        body = read_body(PolicyTextIn, request)
        require_person(request.user, "admin", GLOBAL, doing="test an approval policy")
        return Response(TrialOut(policy_trial.try_policy(body["text"], request.user)).data)

    @extend_schema(request=None, responses=PolicyVersionOut)
    @action(detail=True, methods=["post"], url_path="actions/activate", url_name="activate")
    @without_body
    def activate(self, request: UserApiRequest, number: int) -> Response:
        """Make a proposed version active: as another administrator than its proposer, a person."""
        return Response(PolicyVersionOut(policybook.activate(self.get_object(), by=request.user)).data)

    @extend_schema(request=None, responses=PolicyVersionOut)
    @action(detail=True, methods=["post"], url_path="actions/withdraw", url_name="withdraw")
    @without_body
    def withdraw(self, request: UserApiRequest, number: int) -> Response:
        """End a proposal without effect: its proposer, or another administrator."""
        row = self.get_object()
        policybook.withdraw(row, by=request.user)
        return Response(PolicyVersionOut(row).data)
