"""REST: rules of workload identity. The service checks permissions; these classes only translate."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.response import Response

from accounts.access.tokens import MOST_MINUTES
from accounts.models import WorkloadRule
from accounts.people.pending import Proposed
from accounts.permissions import GLOBAL, Role, require, require_audit
from accounts.web.pending_api import PendingChangeOut, proposed
from accounts.workloads import rules
from common.api import ApiViewSet, created
from common.bodies import Body
from common.requests import UserApiRequest

NETWORKS = "Address ranges that requests are accepted from, such as 10.0.0.0/8; empty: any."


class WorkloadRuleOut(serializers.ModelSerializer[WorkloadRule]):
    account = serializers.EmailField(source="account.email", read_only=True)
    scopes = serializers.ListField(child=serializers.ChoiceField(rules.SCOPES))
    conditions = serializers.DictField(child=serializers.CharField(), help_text="Claim: value, in which * may stand.")
    keys = serializers.DictField(help_text="A JWKS in place of the issuer's published one; empty: that one.")
    networks = serializers.SerializerMethodField(help_text=NETWORKS)

    class Meta:
        model = WorkloadRule
        fields = [
            "id", "name", "issuer", "audience", "account", "conditions", "scopes", "minutes", "may_repeat", "networks",
            "keys", "is_enabled", "made_by", "made_at", "used_at",
        ]  # fmt: skip

    def get_networks(self, row: WorkloadRule) -> list[str]:
        return row.networks.split()


class WorkloadRuleIn(Body[WorkloadRule]):
    name = serializers.CharField(max_length=40)
    issuer = serializers.CharField(max_length=rules.LONGEST_URL, help_text="https URL: the claim iss of its tokens.")
    audience = serializers.CharField(
        max_length=rules.LONGEST_URL, required=False, help_text="Left out: the address of this installation."
    )
    account = serializers.EmailField(help_text="The service account that its tokens act as.")
    conditions = serializers.DictField(
        child=serializers.CharField(max_length=500, trim_whitespace=False),
        help_text="Claim, as a dotted path: value, in which * matches any characters but / and :. All must hold.",
    )
    scopes = serializers.ListField(child=serializers.CharField(max_length=10), min_length=1, max_length=5)
    minutes = serializers.IntegerField(
        min_value=1, max_value=MOST_MINUTES, required=False, default=15, help_text="How long its tokens live."
    )
    may_repeat = serializers.BooleanField(
        required=False, default=False, help_text="Exchange the same token more than once, as pods need it."
    )
    networks = serializers.ListField(
        child=serializers.CharField(max_length=60), required=False, default=list, help_text=NETWORKS
    )
    keys = serializers.DictField(
        required=False, default=dict, help_text="A JWKS, for an issuer that cannot be reached from here."
    )


class WorkloadRuleChange(Body[WorkloadRule]):
    is_enabled = serializers.BooleanField()


class WorkloadRules(mixins.ListModelMixin, ApiViewSet):
    """Rules by which tokens of outside issuers are exchanged for short-lived API tokens. For administrators of
    everything."""

    request: UserApiRequest
    scope_for = {"GET": "read", "POST": "admin", "PATCH": "admin", "DELETE": "admin"}
    serializer_class = WorkloadRuleOut
    ordering_fields = ("name", "made_at", "used_at")
    filterset_fields = ["name", "is_enabled"]
    lookup_value_converter = "uuid"
    shown_once = ("code",)

    def get_queryset(self) -> QuerySet[WorkloadRule]:
        if getattr(self, "swagger_fake_view", False):
            return WorkloadRule.objects.none()
        require_audit(self.request.user, "see rules for workloads")
        return WorkloadRule.objects.select_related("account")

    @extend_schema(request=WorkloadRuleIn, responses={201: WorkloadRuleOut, 202: PendingChangeOut})
    def create(self, request: UserApiRequest) -> Response:
        """Make a rule. 202: one with the scope admin waits for a second administrator's consent."""
        require(request.user, Role.ADMIN, GLOBAL, "make a rule for workloads")
        body = WorkloadRuleIn(data=request.data)
        body.is_valid(raise_exception=True)
        wishes: dict[str, Any] = {"audience": rules.default_audience(), **body.validated_data}
        done = rules.make(by=request.user, **wishes)
        if isinstance(done, Proposed):
            return proposed(done)
        return created(WorkloadRuleOut(done).data, f"/api/v1/workload-rules/{done.pk}")

    @extend_schema(request=WorkloadRuleChange, responses={200: WorkloadRuleOut, 202: PendingChangeOut})
    def partial_update(self, request: UserApiRequest, pk: UUID) -> Response:
        """Disable a rule, which ends its tokens, or enable it again. 202: as when it is made."""
        rule = self.get_object()
        require(request.user, Role.ADMIN, GLOBAL, "change a rule for workloads")
        body = WorkloadRuleChange(data=request.data)
        body.is_valid(raise_exception=True)
        done = rules.set_enabled(rule=rule, is_enabled=body.validated_data["is_enabled"], by=request.user)
        return proposed(done) if isinstance(done, Proposed) else Response(WorkloadRuleOut(done).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: UserApiRequest, pk: UUID) -> Response:
        """Delete a rule and end its tokens."""
        rules.delete(rule=self.get_object(), by=request.user)
        return Response(status=status.HTTP_204_NO_CONTENT)
