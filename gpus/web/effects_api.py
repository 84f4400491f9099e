"""REST API of rollouts' effects on their GPUs, with the pairs behind them, so that anyone can recompute them."""

from __future__ import annotations

from typing import Any

import django_filters
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema_field
from rest_framework import mixins, serializers

from common.api import ApiViewSet
from common.filtering import ClusterReferenceFilter
from common.requests import UserApiRequest
from gpus.effects import estimation, measures, reports
from gpus.models import Study, StudyEffect, StudyNode


class AdjustmentOut(serializers.Serializer[Any]):
    """Adjustment by the past (CUPED): what the same jobs did at the same hours of up to 7 earlier days."""

    weight = serializers.FloatField(source="past_weight", help_text="Share of the past's own difference taken off.")
    narrower = serializers.FloatField(help_text="Share by which the interval is narrower; below 0: wider.")
    unadjusted = serializers.FloatField(help_text="Estimate without it, as `ratio` or `points`.")
    clusters = serializers.IntegerField(
        source="past_clusters", help_text="Nodes or jobs with a past; all others count."
    )
    control_clusters = serializers.IntegerField(source="past_control_clusters")


class EffectOut(serializers.ModelSerializer[StudyEffect]):
    """One measure. `ratio` 0.08 is +8 %; `points`, `before`, `after` and `expected` are in `unit`, shares as 0-1."""

    measure = serializers.ChoiceField(choices=list(measures.BY_NAME))
    subject = serializers.SerializerMethodField(help_text="Pairs are of GPUs, or of hosts: one of each node.")
    unit = serializers.SerializerMethodField(help_text="share is of the time, 0-1; MB/s are 1,000,000 bytes a second.")
    better = serializers.SerializerMethodField(help_text="The direction that is better; neither: not by itself.")
    verdict = serializers.ChoiceField(choices=[str(v) for v in estimation.EffectVerdict])
    is_primary = serializers.BooleanField(
        help_text="The measure that the study is about: the plan's, else OFU, else tensor, else busy."
    )
    why = serializers.CharField(help_text="Of a verdict that is no answer: why not.")
    confidence = serializers.FloatField(
        help_text="Of the intervals: 0.95, and with a control more for measures beside the primary one."
    )
    day_before = serializers.FloatField(
        allow_null=True, help_text="Mean in the hours of `after`, a day earlier; before and after only."
    )
    day_before_change = serializers.FloatField(
        allow_null=True,
        help_text="From `day_before` to `after`, of the devices that have both; as `ratio` or `points`.",
    )
    rest_change = serializers.FloatField(
        allow_null=True,
        help_text="Change of the rest of the fleet in the same windows, as `ratio` or `points`; before and after only.",
    )
    rest_devices = serializers.IntegerField(help_text="Of the rest of the fleet, at most those of 64 nodes.")
    rest_clusters = serializers.IntegerField(help_text="Nodes, or jobs on several nodes.")
    before = serializers.FloatField(allow_null=True, help_text="Mean of the treated, before.")
    expected = serializers.FloatField(allow_null=True, help_text="What `after` would have been without the change.")
    ratio_low = serializers.FloatField(allow_null=True, help_text="Interval; null: too few nodes or jobs.")
    clusters = serializers.IntegerField(help_text="Nodes, or jobs where one job is on several nodes.")
    left_out = serializers.IntegerField(help_text="Devices of kinds that only one arm has.")
    adjustment = serializers.SerializerMethodField(
        help_text="Of the estimate by the past of both arms; null: it is not adjusted."
    )

    class Meta:
        model = StudyEffect
        fields = [
            "measure", "subject", "unit", "better", "is_primary", "verdict", "why", "confidence", "ratio", "ratio_low",
            "ratio_high", "points", "points_low", "points_high", "before", "after", "day_before", "day_before_change",
            "rest_change", "rest_devices", "rest_clusters", "expected", "devices", "clusters", "control_devices",
            "control_clusters", "left_out", "adjustment",
        ]  # fmt: skip

    @extend_schema_field(AdjustmentOut(allow_null=True))
    def get_adjustment(self, row: StudyEffect) -> Any:
        return AdjustmentOut(row).data if row.past_weight is not None else None

    @extend_schema_field(serializers.ChoiceField(choices=["gpu", "host"]))
    def get_subject(self, row: StudyEffect) -> str:
        return "host" if measures.BY_NAME[row.measure].of_host else "gpu"

    def get_unit(self, row: StudyEffect) -> str:
        unit = measures.BY_NAME[row.measure].unit
        return "share" if unit == "%" else unit

    @extend_schema_field(serializers.ChoiceField(choices=["higher", "lower", "neither"]))
    def get_better(self, row: StudyEffect) -> str:
        return measures.BY_NAME[row.measure].better


class ArmAttritionOut(serializers.Serializer[Any]):
    nodes = serializers.IntegerField(help_text="That chance put into the arm.")
    lost = serializers.IntegerField(help_text="Of these, without a figure.")
    why = serializers.DictField(child=serializers.IntegerField(), help_text="{why they have none: nodes}")
    deviations = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="{what became of nodes that stay in their arm: nodes}: did not succeed, put back, no longer there",
    )


class AttritionOut(serializers.Serializer[Any]):
    """Loss of nodes by arm, with the probability of a difference as large by chance (Fisher's exact test)."""

    treated = ArmAttritionOut()
    control = ArmAttritionOut()
    p = serializers.FloatField()
    is_uneven = serializers.BooleanField(help_text="p is below 0.05: the verdict is of what is left, and may be wrong.")


class StudyOut(serializers.ModelSerializer[Study]):
    rollout = serializers.UUIDField(source="rollout_id")
    rollout_name = serializers.CharField(source="rollout.__str__", read_only=True)
    cluster = serializers.UUIDField(source="rollout.cluster_id")
    cluster_name = serializers.CharField(source="rollout.cluster.name")
    pool = serializers.CharField(source="rollout.plan.pool.name")
    revision = serializers.CharField(source="rollout.plan.revision.__str__", read_only=True)
    design = serializers.SerializerMethodField(
        help_text="`before and after` tells what happened, not what the change did; `difference in differences` does."
    )
    nodes = serializers.SerializerMethodField()
    control_nodes = serializers.SerializerMethodField()
    left_out = serializers.SerializerMethodField(help_text="What is left out and why, one sentence each.")
    attrition = serializers.SerializerMethodField(
        help_text="Nodes without figures by arm; null without a control, and before the first figures."
    )
    caution = serializers.SerializerMethodField(
        help_text="What else than the change is in the difference: treated nodes were drained, the control was not."
    )
    rest_nodes = serializers.SerializerMethodField(help_text="Of the rest of the fleet, with figures.")
    primary_measure = serializers.CharField(
        allow_blank=True, help_text="That the plan names; empty: the first of OFU, tensor and busy that is reported."
    )
    hosts = serializers.SerializerMethodField(help_text="Nodes whose host has figures.")
    hosts_left_out = serializers.SerializerMethodField(help_text="{why a node's host has none: nodes}")
    effects = EffectOut(many=True)

    class Meta:
        model = Study
        fields = [
            "rollout", "rollout_name", "cluster", "cluster_name", "pool", "revision", "design", "is_causal", "hours",
            "settle_minutes", "primary_measure", "state", "measured_at", "ends_at", "nodes", "control_nodes",
            "left_out", "attrition", "caution", "rest_nodes", "hosts", "hosts_left_out", "effects",
        ]  # fmt: skip

    @extend_schema_field(serializers.ChoiceField(choices=["before and after", "difference in differences"]))
    def get_design(self, study: Study) -> str:
        return "difference in differences" if study.is_causal else "before and after"

    def get_nodes(self, study: Study) -> int:
        return int(study.counts.get("nodes", 0))

    def get_control_nodes(self, study: Study) -> int:
        return int(study.counts.get("control_nodes", 0))

    @extend_schema_field(AttritionOut(allow_null=True))
    def get_attrition(self, study: Study) -> Any:
        return study.counts.get("attrition")

    def get_caution(self, study: Study) -> str:
        return reports.caution(study)

    def get_rest_nodes(self, study: Study) -> int:
        return int(study.counts.get("rest_nodes", 0))

    def get_hosts(self, study: Study) -> int:
        return int(study.counts.get("hosts", 0))

    @extend_schema_field(serializers.DictField(child=serializers.IntegerField()))
    def get_hosts_left_out(self, study: Study) -> Any:
        return study.counts.get("hosts_left_out") or {}

    @extend_schema_field(serializers.ListField(child=serializers.CharField()))
    def get_left_out(self, study: Study) -> list[str]:
        return reports.left_out(study)


class StudyFilter(django_filters.FilterSet):  # type: ignore[misc]
    cluster = ClusterReferenceFilter(field_name="rollout__cluster")
    profile = django_filters.CharFilter(field_name="rollout__plan__revision__profile__name", max_length=63)
    is_causal = django_filters.BooleanFilter()

    class Meta:
        model = Study
        fields: list[str] = []


class StudyViewSet(mixins.ListModelMixin, ApiViewSet):
    """Effects of each rollout on the GPUs of its nodes, by the rollout's id."""

    request: UserApiRequest
    queryset = Study.objects.none()
    serializer_class = StudyOut
    filterset_class = StudyFilter
    lookup_value_converter = "uuid"
    ordering_fields = ("measured_at",)
    scope_for = {"GET": "read"}

    def get_queryset(self) -> QuerySet[Study]:
        return reports.visible(self.request.user).prefetch_related("effects").order_by("-rollout__number")


class DevicePastOut(serializers.Serializer[Any]):
    days = serializers.IntegerField(help_text="With the first window's job, since the node's last change; at most 7.")
    figures = serializers.DictField(
        child=serializers.FloatField(), help_text="{measure: mean in the hours of after on those days}"
    )


class DevicePairOut(serializers.Serializer[Any]):
    uuid = serializers.CharField()
    instance = serializers.CharField(allow_blank=True)
    model = serializers.CharField(allow_blank=True)
    job = serializers.CharField(allow_blank=True, help_text="namespace/name, by the name of the pod; empty: several.")
    left_out = serializers.CharField(allow_blank=True, help_text="Why it does not count.")
    figures = serializers.DictField(
        child=serializers.ListField(child=serializers.FloatField(), min_length=2, max_length=2),
        help_text="{measure: [before, after]}",
    )
    day_before = serializers.DictField(
        child=serializers.FloatField(), default=dict, help_text="{measure: in the hours of after, a day earlier}"
    )
    job_before = serializers.CharField(default="", allow_blank=True, help_text="That of the first window.")
    past = DevicePastOut(default=None, allow_null=True, help_text="With a control, of what counts; else null.")


class HostPairOut(serializers.Serializer[Any]):
    """Figures of a node's host in the windows of its GPUs; empty where none of its GPUs counts."""

    why = serializers.CharField(
        default="", help_text="no Prometheus, no target, not answered or too few figures; empty: it was read."
    )
    detail = serializers.CharField(default="", help_text="A sentence of it.")
    figures = serializers.DictField(
        child=serializers.ListField(child=serializers.FloatField(), min_length=2, max_length=2),
        default=dict,
        help_text="{measure: [before, after]}",
    )
    day_before = serializers.DictField(
        child=serializers.FloatField(), default=dict, help_text="{measure: in the hours of after, a day earlier}"
    )
    lacks = serializers.DictField(
        child=serializers.CharField(), default=dict, help_text="{measure: why it has no value at all}"
    )


class StudyNodeOut(serializers.ModelSerializer[StudyNode]):
    devices = DevicePairOut(many=True)
    host = HostPairOut()

    class Meta:
        model = StudyNode
        fields = [
            "id", "node", "node_name", "stratum", "is_treated", "began_at", "ended_at", "until", "left_out",
            "deviation", "is_context", "is_final", "host", "devices",
        ]  # fmt: skip


class StudyNodeViewSet(mixins.ListModelMixin, ApiViewSet):
    """The pairs of one rollout's effects, node by node: every figure of theirs comes from these."""

    request: UserApiRequest
    queryset = StudyNode.objects.none()
    serializer_class = StudyNodeOut
    lookup_value_converter = "int"
    ordering_fields = ("node_name",)
    scope_for = {"GET": "read"}

    def get_queryset(self) -> QuerySet[StudyNode]:
        if getattr(self, "swagger_fake_view", False):
            return StudyNode.objects.none()
        study = get_object_or_404(reports.visible(self.request.user), pk=self.kwargs["rollout_pk"])
        return study.nodes.order_by("node_name", "pk")
