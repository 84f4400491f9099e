"""REST representations of approval rules, and the body that is accepted."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from clusters.models import Cluster
from common.bodies import Body
from jobs.approvals import rulebook, rules
from jobs.diffs.changes import Disruption
from jobs.models import ApprovalRule


class RuleOut(serializers.ModelSerializer[ApprovalRule]):
    cluster = serializers.UUIDField(source="cluster_id", allow_null=True)
    cluster_name = serializers.CharField(source="cluster.name", default=None, allow_null=True)
    about = serializers.SerializerMethodField(help_text="Which plans it fits, in words.")
    demand = serializers.SerializerMethodField(help_text="What it asks for, in words.")
    changed_by = serializers.CharField(source="changed_by.email", default=None, allow_null=True)

    class Meta:
        model = ApprovalRule
        fields = ["id", *rulebook.FIELDS, "cluster_name", "about", "demand", "version", "changed_at", "changed_by"]

    @extend_schema_field(serializers.CharField())
    def get_about(self, row: ApprovalRule) -> str:
        return rules.describe_conditions(row)

    @extend_schema_field(serializers.CharField())
    def get_demand(self, row: ApprovalRule) -> str:
        return rules.describe_demand(rules.RuleRequirement.of(row))


class RuleIn(Body[Any]):
    """Approval rule: the plans it fits (an absent condition fits all), the number of approvers, and their roles."""

    name = serializers.CharField(max_length=80)
    environment = serializers.ChoiceField(choices=Cluster.Environment.choices, required=False, allow_blank=True)
    cluster = serializers.UUIDField(required=False, allow_null=True)
    worst_class = serializers.ChoiceField(
        choices=[str(c) for c in Disruption], required=False, allow_blank=True, help_text="This disruptive, or more."
    )
    gpu_percent = serializers.IntegerField(
        min_value=1,
        max_value=100,
        required=False,
        allow_null=True,
        help_text="At least this share of the cluster's GPUs.",
    )
    node_percent = serializers.IntegerField(
        min_value=1, max_value=100, required=False, allow_null=True, help_text="At least this share of its nodes."
    )
    gpus = serializers.IntegerField(
        min_value=1, max_value=rulebook.MOST, required=False, allow_null=True,
        help_text="At least so many GPUs out of service.",
    )  # fmt: skip
    gpu_jobs = serializers.IntegerField(
        min_value=1, max_value=rulebook.MOST, required=False, allow_null=True,
        help_text="At least so many GPU jobs interrupted.",
    )  # fmt: skip
    namespace = serializers.CharField(
        max_length=63, required=False, allow_blank=True, help_text="GPU jobs of this namespace are interrupted."
    )
    component = serializers.CharField(
        max_length=63, required=False, allow_blank=True, help_text="This component of the catalog is changed."
    )
    weakens_security = serializers.BooleanField(
        required=False, help_text="True: only plans with settings that weaken a node's security."
    )
    approvers = serializers.IntegerField(min_value=1, max_value=rulebook.MOST_APPROVERS)
    of_count = serializers.IntegerField(
        min_value=0, max_value=rulebook.MOST_APPROVERS, required=False, help_text="So many of them hold `of_role`."
    )
    is_enabled = serializers.BooleanField(required=False, help_text="False: it fits no plan until it is enabled again.")
    of_role = serializers.ChoiceField(choices=[str(r) for r in rulebook.OF_ROLES], required=False, allow_blank=True)
    of_scope = serializers.CharField(
        max_length=60, required=False, allow_blank=True,
        help_text="`*`, `env:<environment>` or `cluster:<uuid>`; empty: any that covers the plan's cluster.",
    )  # fmt: skip
