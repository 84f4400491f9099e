"""REST: alerts, what people do about them, and the rules that make them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.response import Response

from accounts.permissions import Role, may
from clusters.models import Cluster
from clusters.reports.selectors import clusters_visible_to
from common.api import ApiView, ApiViewSet, expected_version, with_etag
from common.bodies import Body, Instant, without_body
from common.requests import UserApiRequest
from notices import members
from notices.alerts import alert_actions, rulebook
from notices.alerts.rulebook import EffectiveRule
from notices.models import SEVERITIES, Alert, RuleSetting
from notices.reports import selectors


# ── Alerts ────────────────────────────────────────────────────────────────────────────────────────────────────────────
class AlertSubjectOut(serializers.Serializer[Alert]):
    kind = serializers.CharField(
        source="subject_kind", help_text="cluster, node, device, pod, workload, rollout or fleet (a fleet run)."
    )
    id = serializers.CharField(source="subject", help_text="What identifies it in its cluster.")
    name = serializers.CharField(source="subject_name")


class AlertMemberOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    since = serializers.DateTimeField()
    figures = serializers.DictField(child=serializers.JSONField(), help_text="{name: number or word}")


class AlertOut(serializers.ModelSerializer[Alert]):
    cluster_name = serializers.CharField(source="cluster.name")
    subject = AlertSubjectOut(source="*")
    severity = serializers.ChoiceField(choices=SEVERITIES)
    status = serializers.ChoiceField(choices=Alert.Status.choices)
    ending = serializers.ChoiceField(choices=Alert.Ending.choices, allow_blank=True, help_text="Why it closed.")
    figures = serializers.DictField(child=serializers.JSONField(), help_text="{name: number or word}")
    members = serializers.SerializerMethodField(
        help_text=f"What it consists of now, where it is one alert for several; the first {members.SHOWN}."
    )
    member_count = serializers.SerializerMethodField(help_text="Of all members; 0 where it is about one subject.")
    what_to_do = serializers.CharField(source="mend")
    page = serializers.CharField(source="link", help_text="The page that shows it, without the host.")
    is_silenced = serializers.BooleanField()
    actions = serializers.SerializerMethodField(help_text="What its state permits.")
    permissions = serializers.SerializerMethodField(help_text="What the caller may.")

    class Meta:
        model = Alert
        fields = [
            "id", "rule", "cluster", "cluster_name", "subject", "node", "namespace", "severity", "status", "sentence",
            "what_to_do", "page", "figures", "members", "member_count", "began_at", "opened_at", "last_seen_at",
            "well_since", "is_unknown", "closed_at", "ending", "acknowledged_at", "acknowledged_by", "silenced_until",
            "silenced_by", "is_silenced", "note", "version", "actions", "permissions",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(AlertMemberOut(many=True))
    def get_members(self, row: Alert) -> Any:
        return AlertMemberOut(list(members.shown(row.members)), many=True).data

    def get_member_count(self, row: Alert) -> int:
        return len(members.present(row.members))

    def get_actions(self, row: Alert) -> dict[str, bool]:
        is_open = row.status == Alert.Status.OPEN
        return {
            "acknowledge": is_open and row.acknowledged_at is None,
            "silence": is_open,
            "unsilence": row.is_silenced,
        }

    def get_permissions(self, row: Alert) -> dict[str, bool]:
        return {"act": may(self.context["request"].user, Role.OPERATOR, row.cluster.scopes)}


class NoteIn(Body[Any]):
    note = serializers.CharField(required=False, allow_blank=True, max_length=alert_actions.LONGEST_NOTE)


class SilenceIn(NoteIn):
    until = Instant(help_text="In the future, within 30 days.")


class Alerts(mixins.ListModelMixin, ApiViewSet):
    """Condition, and was, in the caller's clusters. Alerts open and close by themselves."""

    request: UserApiRequest
    queryset = Alert.objects.none()
    scope_for = {"GET": "read", "acknowledge": "apply", "silence": "apply", "unsilence": "apply"}
    serializer_class = AlertOut
    filterset_class = selectors.AlertFilter
    orders = selectors.ALERT_ORDERS
    lookup_value_converter = "uuid"
    is_versioned = True
    once_only = False

    def get_queryset(self) -> QuerySet[Alert]:
        return selectors.ALERT_ORDERS.chosen("").of(selectors.alerts(self.request.user))

    def _answer(self, row: Alert) -> Response:
        return with_etag(Response(self.get_serializer(row).data), row)

    @extend_schema(request=NoteIn, responses=AlertOut)
    @action(detail=True, methods=["post"], url_path="actions/acknowledge", url_name="acknowledge")
    def acknowledge(self, request: UserApiRequest, pk: UUID) -> Response:
        """Acknowledge the alert: it no longer waits for attention. It closes when its condition is over, as always."""
        row = self.get_object()
        form = NoteIn(data=request.data)
        form.is_valid(raise_exception=True)
        alert_actions.acknowledge(row, by=request.user, **form.validated_data)
        return self._answer(row)

    @extend_schema(request=SilenceIn, responses=AlertOut)
    @action(detail=True, methods=["post"], url_path="actions/silence", url_name="silence")
    def silence(self, request: UserApiRequest, pk: UUID) -> Response:
        """Silence the alert: nothing is sent about it until then, even if it closes and opens again meanwhile."""
        row = self.get_object()
        form = SilenceIn(data=request.data)
        form.is_valid(raise_exception=True)
        alert_actions.silence(row, by=request.user, **form.validated_data)
        return self._answer(row)

    @extend_schema(request=None, responses=AlertOut)
    @action(detail=True, methods=["post"], url_path="actions/unsilence", url_name="unsilence")
    @without_body
    def unsilence(self, request: UserApiRequest, pk: UUID) -> Response:
        row = self.get_object()
        alert_actions.unsilence(row, by=request.user)
        return self._answer(row)


# ── Rules ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
class AlertThresholdOut(serializers.Serializer[Any]):
    default = serializers.FloatField()
    least = serializers.FloatField()
    most = serializers.FloatField()
    unit = serializers.CharField()
    means = serializers.CharField()


class AlertRuleOut(serializers.Serializer[EffectiveRule]):
    """A rule as it holds there."""

    name = serializers.CharField(source="rule.name")
    title = serializers.CharField(source="rule.title")
    about = serializers.CharField(help_text="When it fires, with its numbers.")
    is_enabled = serializers.BooleanField()
    severity = serializers.ChoiceField(choices=SEVERITIES)
    threshold = serializers.FloatField(allow_null=True, help_text="In the unit of `limits`.")
    opens_after = serializers.SerializerMethodField(help_text="Seconds for which the condition must persist.")
    closes_after = serializers.SerializerMethodField(help_text="Seconds for which it must stay resolved.")
    limits = AlertThresholdOut(source="rule.threshold", allow_null=True)
    set_for = serializers.SerializerMethodField(
        help_text="builtin, everywhere or cluster: where the setting comes from."
    )
    not_judged = serializers.SerializerMethodField(
        help_text="Of one cluster: what the rule does not judge there, such as for a metric that is not exported."
    )
    version = serializers.SerializerMethodField(help_text="Of exactly this place; 0: nothing is set here.")

    def get_not_judged(self, row: EffectiveRule) -> str:
        why, _is_all = self.context["not_judged"].get(row.rule.name, ("", False))
        return str(why)

    def get_opens_after(self, row: EffectiveRule) -> int:
        return round(row.opens_after.total_seconds())

    def get_closes_after(self, row: EffectiveRule) -> int:
        return round(row.closes_after.total_seconds())

    def get_set_for(self, row: EffectiveRule) -> str:
        if row.setting is None:
            return "builtin"
        return "cluster" if row.setting.cluster_id else "everywhere"

    def get_version(self, row: EffectiveRule) -> int:
        cluster = self.context.get("cluster")
        is_here = row.setting is not None and row.setting.cluster_id == (cluster.pk if cluster else None)
        return row.setting.version if is_here and row.setting else 0


class AlertRulesOut(serializers.Serializer[Any]):
    results = AlertRuleOut(many=True)


class AlertRuleIn(Body[Any]):
    """Changes to an alert rule. A field left out keeps its present value there."""

    is_enabled = serializers.BooleanField(required=False)
    severity = serializers.ChoiceField(choices=SEVERITIES, required=False)
    threshold = serializers.FloatField(required=False)
    opens_after = serializers.IntegerField(required=False, min_value=0, max_value=rulebook.LONGEST)
    closes_after = serializers.IntegerField(required=False, min_value=0, max_value=rulebook.LONGEST)


class _OfPlace(ApiView):
    request: UserApiRequest

    def place(self) -> Cluster | None:
        pk = self.kwargs.get("cluster_pk")
        return get_object_or_404(clusters_visible_to(self.request.user), pk=pk) if pk else None

    def context_of(self, place: Cluster | None) -> dict[str, Any]:
        return {"cluster": place, "not_judged": selectors.not_judged(place.pk if place else None)}


class AlertRules(_OfPlace):
    """Every rule, as it holds everywhere or for one cluster."""

    scope_for = {"GET": "read"}

    @extend_schema(operation_id="alert_rules_list", responses=AlertRulesOut)
    def get(self, request: UserApiRequest, cluster_pk: UUID | None = None) -> Response:
        place = self.place()
        rows = rulebook.of_cluster(place.pk if place else None)
        return Response(AlertRulesOut({"results": rows}, context=self.context_of(place)).data)


class ClusterAlertRules(AlertRules):
    @extend_schema(operation_id="clusters_alert_rules_list", responses=AlertRulesOut)
    def get(self, request: UserApiRequest, cluster_pk: UUID | None = None) -> Response:
        return super().get(request, cluster_pk)


class AlertRuleView(_OfPlace):
    """One rule, everywhere or for one cluster."""

    scope_for = {"GET": "read", "PATCH": "admin", "DELETE": "admin"}

    def _answer(self, setting: RuleSetting | None = None) -> Response:
        place = self.place()
        name = self.kwargs["name"]
        row = next(
            effective for effective in rulebook.of_cluster(place.pk if place else None) if effective.rule.name == name
        )
        stored = setting or rulebook.setting_of(row.rule, place)
        return with_etag(Response(AlertRuleOut(row, context=self.context_of(place)).data), stored)

    def _change(self, request: UserApiRequest) -> Response:
        rule, place = rulebook.named(self.kwargs["name"]), self.place()
        self._require(place)
        form = AlertRuleIn(data=request.data)
        form.is_valid(raise_exception=True)
        version = expected_version(request, rulebook.setting_of(rule, place))
        return self._answer(rulebook.change(rule, place, by=request.user, version=version, **form.validated_data))

    def _reset(self, request: UserApiRequest) -> Response:
        rule, place = rulebook.named(self.kwargs["name"]), self.place()
        self._require(place)
        rulebook.reset(
            rule, place, by=request.user, version=expected_version(request, rulebook.setting_of(rule, place))
        )
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _require(self, place: Cluster | None) -> None:
        rulebook.require_change(self.request.user, place)


class EverywhereAlertRule(AlertRuleView):
    @extend_schema(operation_id="alert_rules_retrieve", responses=AlertRuleOut)
    def get(self, request: UserApiRequest, name: str) -> Response:
        rulebook.named(name)
        return self._answer()

    @extend_schema(operation_id="alert_rules_update", request=AlertRuleIn, responses=AlertRuleOut)
    def patch(self, request: UserApiRequest, name: str) -> Response:
        """Set it for every cluster that has nothing of its own. If-Match "0" where nothing is set yet."""
        return self._change(request)

    @extend_schema(operation_id="alert_rules_reset", responses={204: None})
    def delete(self, request: UserApiRequest, name: str) -> Response:
        """Back to what Setpoint brings."""
        return self._reset(request)


class ClusterAlertRule(AlertRuleView):
    @extend_schema(operation_id="clusters_alert_rules_retrieve", responses=AlertRuleOut)
    def get(self, request: UserApiRequest, cluster_pk: UUID, name: str) -> Response:
        rulebook.named(name)
        return self._answer()

    @extend_schema(operation_id="clusters_alert_rules_update", request=AlertRuleIn, responses=AlertRuleOut)
    def patch(self, request: UserApiRequest, cluster_pk: UUID, name: str) -> Response:
        """Set it for this cluster alone. If-Match "0" where nothing is set yet."""
        return self._change(request)

    @extend_schema(operation_id="clusters_alert_rules_reset", responses={204: None})
    def delete(self, request: UserApiRequest, cluster_pk: UUID, name: str) -> Response:
        """Back to what holds everywhere."""
        return self._reset(request)
