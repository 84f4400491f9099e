"""REST representations of policy versions and trials, and the bodies that are accepted."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from common.bodies import Body
from jobs.approvals import policybook
from jobs.models import PolicyVersion
from jobs.policy import policy_text
from jobs.reports import policy_versions

STATES = ("active", "retired", "proposed", "closed")


class PolicyVersionOut(serializers.ModelSerializer[PolicyVersion]):
    state = serializers.SerializerMethodField(help_text="`closed`: withdrawn, refused or expired, and never active.")
    digest = serializers.SerializerMethodField(help_text="SHA-256 of the text.")
    proposed_by = serializers.CharField(source="proposed_by.email")
    activated_by = serializers.CharField(source="activated_by.email", default=None, allow_null=True)

    class Meta:
        model = PolicyVersion
        fields = [
            "id", "number", "state", "digest", "text", "message", "proposed_by", "proposed_at", "activated_by",
            "activated_at", "retired_at",
        ]  # fmt: skip

    @extend_schema_field(serializers.ChoiceField(choices=STATES))
    def get_state(self, row: PolicyVersion) -> str:
        return policy_versions.version_states([row])[0].state

    @extend_schema_field(serializers.CharField())
    def get_digest(self, row: PolicyVersion) -> str:
        return policy_text.digest(row.text)


class PolicyTextIn(Body[Any]):
    text = serializers.CharField(
        max_length=policy_text.MOST_BYTES, trim_whitespace=False, help_text="YAML: docs/policy.md."
    )


class PolicyIn(PolicyTextIn):
    message = serializers.CharField(
        max_length=policybook.MESSAGE_CHARACTERS, help_text="Why; the second administrator reads it."
    )


class RulesAsPolicyOut(serializers.Serializer[Any]):
    text = serializers.CharField(help_text="A policy that requires what the approval rules require.")
    rules = serializers.IntegerField(help_text="In the text.")
    disabled = serializers.IntegerField(help_text="Disabled rules, which are not in it.")
    plans = serializers.IntegerField(help_text="All that are stored.")
    compared = serializers.IntegerField(help_text="The newest of them, at most 1,000.")
    differing = serializers.ListField(
        child=serializers.CharField(),
        help_text="Plans of which the text alone and the rules require different approvers; none is expected.",
    )


class StoppedPlanOut(serializers.Serializer[Any]):
    plan = serializers.UUIDField(source="plan.pk")
    name = serializers.CharField(source="plan")
    cluster_name = serializers.CharField(source="plan.cluster.name")
    status = serializers.CharField(source="plan.status")
    rule = serializers.CharField()
    why = serializers.CharField()
    is_refused = serializers.BooleanField(help_text="False: it would have needed more approvals than it has.")
    by_active = serializers.BooleanField(help_text="The active policy stops it, too.")


class TrialOut(serializers.Serializer[Any]):
    plans = serializers.IntegerField(help_text="That you can see.")
    judged = serializers.IntegerField(help_text="Fewer than `plans` if the conditions take too many steps.")
    stopped_count = serializers.IntegerField()
    active_count = serializers.IntegerField(help_text="Of those judged, how many the active policy stops.")
    by_rule = serializers.DictField(child=serializers.IntegerField())
    stopped = StoppedPlanOut(many=True, help_text="At most 100, the newest first.")
