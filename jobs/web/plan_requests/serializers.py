"""Answers of REST about a plan that a worker makes."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.models import PlanRequest
from jobs.planning import node_rows


class FieldErrorOut(serializers.Serializer[Any]):
    field = serializers.CharField()
    message = serializers.CharField()


class RequestErrorOut(serializers.Serializer[Any]):
    status = serializers.IntegerField(help_text="HTTP status of the same refusal within a request.")
    code = serializers.CharField()
    detail = serializers.CharField()
    errors = FieldErrorOut(many=True)  # type: ignore[assignment]  # as in problem documents


class PlanRequestOut(serializers.ModelSerializer[PlanRequest]):
    cluster = serializers.UUIDField(source="cluster_id")
    pool = serializers.IntegerField(source="pool_id")
    revision = serializers.IntegerField(source="revision_id")
    strategy = serializers.DictField(read_only=True, help_text="As it was asked for.")
    requested_by = serializers.CharField()
    phase = serializers.ChoiceField(choices=["", *node_rows.PHASES], help_text="Of making it; empty before the first.")
    compared = serializers.IntegerField(help_text="Nodes that are through the phase, of `nodes`.")
    error = serializers.SerializerMethodField(help_text="Why it failed; null: it did not.")
    plan = serializers.UUIDField(source="plan_id", allow_null=True, help_text="Once it is made.")

    class Meta:
        model = PlanRequest
        fields = ["id", "status", "cluster", "pool", "revision", "strategy", "message", "requested_by", "requested_at",
                  "phase", "compared", "nodes", "finished_at", "error", "plan"]  # fmt: skip

    @extend_schema_field(RequestErrorOut(allow_null=True))
    def get_error(self, row: PlanRequest) -> dict[str, Any] | None:
        if row.error is None:
            return None
        fields = row.error["fields"]
        errors = [{"field": name, "message": text} for name, texts in fields.items() for text in texts]
        return {name: row.error[name] for name in ("status", "code", "detail")} | {"errors": errors}
