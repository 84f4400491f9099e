"""REST of deployments that serve models: the numbers of their page, read from Prometheus at once."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from common.api import ApiView
from common.requests import UserApiRequest
from gpus.peers.lives import selectors
from gpus.reports import ranges
from gpus.reports.inference import deployments
from gpus.reports.inference.deployments import Deployment, Frontend, Serving
from gpus.reports.inference.figures import Figures
from gpus.web.api import checked_parameters, cluster_of

_RANGE = ("window", "from", "to", "zone")
_PARAMETERS = [
    OpenApiParameter("window", OpenApiTypes.STR, enum=list(ranges.INFERENCE.presets), default=ranges.INFERENCE.default),
    OpenApiParameter("from", OpenApiTypes.STR, description="In place of `window`: a time, such as 2026-11-21T08:00Z."),
    OpenApiParameter("to", OpenApiTypes.STR, description="The same; now if it is left out."),
    OpenApiParameter("zone", OpenApiTypes.STR, description="IANA time zone of times without an offset; else UTC."),
]


def _number(text: str, source: str | None = None) -> serializers.FloatField:
    return serializers.FloatField(allow_null=True, help_text=text, source=source)


class QuantilesOut(serializers.Serializer[Any]):
    """Quantiles over the requests of all of its pods: buckets are summed first."""

    p50 = serializers.FloatField(allow_null=True, help_text="Seconds; null: not exported, or nothing was observed.")
    p95 = serializers.FloatField(allow_null=True)
    p95_is_least = serializers.BooleanField(
        help_text="It lies beyond the histogram's highest boundary, which is given."
    )


class InferenceFiguresOut(serializers.Serializer[Figures]):
    """Means over the part of the time in which the deployment lived; null: not exported, or unknown."""

    seconds = serializers.FloatField(help_text="Of that part.")
    requests_running = _number("In work.", "running")
    requests_waiting = _number("In the queue.", "waiting")
    queue_seconds = _number("For which a request waited on the average.", "queue_wait")
    requests_per_second = _number("That ended well.", "requests")
    preemptions = _number("In all of the time, about.")
    output_tokens_per_second = _number("", "tokens_out")
    input_tokens_per_second = _number("", "tokens_in")
    output_tokens = _number("In all of the time, about.", "tokens")
    kv_cache = _number("Share of 0-1 in use, the mean of its pods.")
    kv_cache_most = _number("The highest reading of any pod.", "kv_most")
    time_to_first_token = serializers.SerializerMethodField()
    time_per_output_token = serializers.SerializerMethodField()

    @extend_schema_field(QuantilesOut)
    def get_time_to_first_token(self, figures: Figures) -> dict[str, Any]:
        return _quantiles(figures, "ttft")

    @extend_schema_field(QuantilesOut)
    def get_time_per_output_token(self, figures: Figures) -> dict[str, Any]:
        return _quantiles(figures, "tpot")


def _quantiles(figures: Figures, name: str) -> dict[str, Any]:
    middle, slow = getattr(figures, name).get(0.5), getattr(figures, name).get(0.95)
    return {
        "p50": middle.value if middle else None,
        "p95": slow.value if slow else None,
        "p95_is_least": bool(slow and slow.is_least),
    }


class InferenceFindingOut(serializers.Serializer[Any]):
    name = serializers.ChoiceField(choices=["memory", "batching", "compute", "over_provisioned"])
    severity = serializers.ChoiceField(choices=["ok", "warn"])
    text = serializers.CharField()


class DeploymentOut(serializers.Serializer[Deployment]):
    job = serializers.IntegerField(source="job.pk", help_text="Of `/gpus/jobs`.")
    namespace = serializers.CharField(source="job.namespace")
    kind = serializers.CharField(source="job.kind")
    name = serializers.CharField(source="job.name")
    servers = serializers.ListField(child=serializers.CharField(), help_text="Such as vLLM.")
    models = serializers.ListField(child=serializers.CharField(), help_text="As the servers name them.")
    replicas = serializers.IntegerField(help_text="Pods at the end of the time.")
    replicas_scraped = serializers.IntegerField(source="scraped", help_text="Those that a server answers at.")
    gpus = serializers.FloatField(source="figures.gpus", help_text="GPUs, or MIG instances, held on the average.")
    gpus_busy = _number("Share of 0-1, of the GPUs that its pods held alone.", "busy")
    output_tokens_per_second_per_gpu = _number("", "figures.tokens_per_gpu")
    cost = serializers.DecimalField(
        max_digits=None, decimal_places=None, allow_null=True, help_text="As the cost page has it; null: no price."
    )
    cost_per_million_output_tokens = serializers.DecimalField(
        max_digits=None, decimal_places=None, allow_null=True, source="cost_per_million"
    )
    figures = InferenceFiguresOut()
    finding = InferenceFindingOut(allow_null=True, help_text="What limits it, where the figures show that.")


class FrontendOut(serializers.Serializer[Frontend]):
    """A server's pod that holds no GPU that is known, such as a Dynamo frontend."""

    namespace = serializers.CharField(source="name.namespace")
    pod = serializers.CharField(source="name.pod")
    servers = serializers.ListField(child=serializers.CharField())
    models = serializers.ListField(child=serializers.CharField())
    figures = InferenceFiguresOut()


class ServingStepsOut(serializers.Serializer[Any]):
    end = serializers.DateTimeField(source="span.end")
    step_seconds = serializers.IntegerField(source="span.step")
    values = serializers.DictField(
        child=serializers.ListField(child=serializers.FloatField(allow_null=True)),
        help_text="By figure, the oldest step first; null: unknown.",
    )


class InferenceOut(serializers.Serializer[Serving]):
    cluster = serializers.UUIDField(source="cluster.pk")
    cluster_name = serializers.CharField(source="cluster.name")
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    why = serializers.CharField(allow_blank=True, help_text="Why there is nothing.")
    prometheus = serializers.CharField(source="title", allow_blank=True, help_text="Which Prometheus was read.")
    warnings = serializers.ListField(child=serializers.CharField(), help_text="Of Prometheus, on incomplete answers.")
    lacks = serializers.DictField(child=serializers.CharField(), help_text="Figures that were not answered, and why.")
    currency = serializers.CharField()
    left_out = serializers.IntegerField(help_text=f"Deployments beyond the first {deployments.MOST_DEPLOYMENTS}.")
    deployments = DeploymentOut(many=True)
    frontends = FrontendOut(many=True)


class JobInferenceOut(InferenceOut):
    steps = ServingStepsOut(allow_null=True)


class InferenceView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(
        operation_id="gpus_inference",
        parameters=[
            OpenApiParameter("cluster", OpenApiTypes.STR, required=True, description="A cluster's id or name."),
            *_PARAMETERS,
        ],
        responses=InferenceOut,
    )
    def get(self, request: UserApiRequest) -> Response:
        """Return the deployments of a cluster that serve models, from its Prometheus now."""
        query = checked_parameters(request, "cluster", *_RANGE)
        if not query["cluster"]:
            raise ValidationError({"cluster": ["Say which."]})
        shown = ranges.INFERENCE.parse(query)
        return Response(InferenceOut(deployments.of_cluster(cluster_of(request, query["cluster"]), shown)).data)


class JobInferenceView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(operation_id="gpus_jobs_inference", parameters=_PARAMETERS, responses=JobInferenceOut)
    def get(self, request: UserApiRequest, pk: int) -> Response:
        """Return one job as a deployment that serves models, also over time, from the cluster's Prometheus now."""
        shown = ranges.INFERENCE.parse(checked_parameters(request, *_RANGE))
        job = get_object_or_404(selectors.jobs(request.user), pk=pk)
        return Response(JobInferenceOut(deployments.of_job(job, shown)).data)
