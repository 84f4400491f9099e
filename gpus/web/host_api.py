"""REST of hosts beside GPUs: the numbers of the parts of a node's and a job's page, read from Prometheus at once."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response

from clusters.reports.selectors import nodes_visible_to
from common.api import ApiView
from common.requests import UserApiRequest
from gpus.peers.lives import hosts as job_hosts
from gpus.peers.lives import selectors
from gpus.reports.hosts import nodes
from gpus.reports.hosts.figures import BYTES, SECONDS, SHARE, THROUGHPUT
from gpus.web.api import checked_parameters


def _number(text: str, source: str | None = None) -> serializers.FloatField:
    return serializers.FloatField(allow_null=True, help_text=text, source=source)


class HostFigureOut(serializers.Serializer[Any]):
    """One figure in its base unit: shares are of 0-1."""

    name = serializers.CharField()
    title = serializers.CharField()
    unit = serializers.ChoiceField(choices=[SHARE, BYTES, THROUGHPUT, SECONDS])
    mean = _number("Of a latency over all operations, of the slowest disk; null: see `lack`.")
    least = _number("Of any step.")
    most = _number("Of any step.")
    values = serializers.ListField(
        child=serializers.FloatField(allow_null=True), help_text="Means by step, the oldest first; null: unknown."
    )
    lack = serializers.CharField(allow_blank=True, help_text="Why there is no value, such as `not exported`.")


class HostDiskOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    read_latency = _number("Seconds a read, over all reads; null: nothing was read, or it is not exported.")
    write_latency = _number("Seconds a write.")
    worst_read = _number("Seconds a read, of the worst step.")
    worst_write = _number("Seconds a write, of the worst step.")
    reads = _number("Completed in a second.")
    writes = _number("Completed in a second.")
    bytes_read = _number("In a second.")
    bytes_written = _number("In a second.")
    busy = _number("Share of the time with an operation in progress.")


class HostInterfaceOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    received = _number("Bytes in a second.")
    sent = _number("Bytes in a second.")
    error_packets = _number("Packets with errors, received and sent, in the whole time.", "errors")
    drops = _number("Packets dropped, received and sent, in the whole time.")


class HostPortOut(serializers.Serializer[Any]):
    device = serializers.CharField()
    port = serializers.CharField()
    received = _number("Bytes in a second.")
    sent = _number("Bytes in a second.")
    rate = _number("Bytes in a second that the link can carry.")
    state = serializers.CharField(source="state_word", allow_blank=True, help_text="Empty: not exported.")
    error_packets = _number("Packets received with an error, and symbol errors, in the whole time.", "errors")
    discards = _number("Outbound packets discarded, in the whole time.")
    downs = _number("Link downs in the whole time.")


class HostFindingOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    severity = serializers.ChoiceField(choices=["ok", "warn", "bad"])
    text = serializers.CharField()
    limits_gpus = serializers.BooleanField(help_text="GPUs that pods held were less than 80 % busy while it was so.")


class NodeHostOut(serializers.Serializer[Any]):
    node = serializers.IntegerField(source="node.pk")
    node_name = serializers.CharField(source="node.name")
    hours = serializers.IntegerField()
    start = serializers.DateTimeField()
    end = serializers.DateTimeField(source="span.end")
    step_seconds = serializers.IntegerField(source="span.step")
    why = serializers.CharField(allow_blank=True, help_text="Why there are no figures.")
    prometheus = serializers.CharField(source="title", allow_blank=True, help_text="Which Prometheus was read.")
    instance = serializers.CharField(source="target.instance", default="", help_text="Of the node exporter's target.")
    job = serializers.CharField(source="target.job", default="")
    matched_by = serializers.CharField(source="target.by", default="", help_text="Label that names the node.")
    warnings = serializers.ListField(child=serializers.CharField(), help_text="Of Prometheus, on incomplete answers.")
    findings = HostFindingOut(many=True)
    figures = serializers.SerializerMethodField(help_text="Each of them, also those without a value.")
    disks = HostDiskOut(many=True, source="figures.disks", default=list)
    interfaces = HostInterfaceOut(many=True, source="figures.interfaces", default=list)
    rdma_ports = HostPortOut(many=True, source="figures.ports", default=list)
    oom_kills = serializers.FloatField(
        source="figures.oom_kills", default=None, allow_null=True, help_text="By the kernel, in the whole time."
    )
    evictions = serializers.DictField(
        source="figures.evictions",
        child=serializers.IntegerField(),
        default=None,
        allow_null=True,
        help_text="Pods that the kubelet evicted in the whole time, by signal; null: its counters are not scraped.",
    )

    @extend_schema_field(HostFigureOut(many=True))
    def get_figures(self, host: nodes.NodeHost) -> list[dict[str, Any]]:
        return list(HostFigureOut(host.figures.figures.values() if host.figures else [], many=True).data)


class JobHostOut(serializers.Serializer[Any]):
    """Means over the time; null: not exported, or unknown."""

    node_name = serializers.CharField(source="name")
    why = serializers.CharField(allow_blank=True, help_text="Why there are no figures of this host.")
    figures = serializers.SerializerMethodField(help_text="By name: shares of 0-1, seconds, bytes in a second.")
    worst = serializers.SerializerMethodField(help_text="Figures in which it is the worst of the job by far.")
    findings = HostFindingOut(many=True)

    def get_figures(self, host: nodes.SideHost) -> dict[str, float | None]:
        return {column.name: host.value(column.name) for column in job_hosts.COLUMNS}

    def get_worst(self, host: nodes.SideHost) -> list[str]:
        return [name for name, worst in self.context["worst"].items() if worst == host.name]


class JobHostsOut(serializers.Serializer[Any]):
    end = serializers.DateTimeField()
    seconds = serializers.IntegerField(help_text="The time before `end` that the means are over.")
    why = serializers.CharField(allow_blank=True, help_text="Why there are no figures.")
    prometheus = serializers.CharField(source="title", allow_blank=True, help_text="Which Prometheus was read.")
    warnings = serializers.ListField(child=serializers.CharField())
    left_out = serializers.IntegerField(help_text=f"Hosts beyond the first {nodes.MOST_HOSTS} by name.")
    hosts = JobHostOut(many=True)


class NodeHostView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(
        operation_id="gpus_nodes_host",
        parameters=[OpenApiParameter("hours", OpenApiTypes.INT, enum=list(nodes.SPANS), default=min(nodes.SPANS))],
        responses=NodeHostOut,
    )
    def get(self, request: UserApiRequest, pk: int) -> Response:
        """Return what the host of a node did beside its GPUs, from the cluster's Prometheus now."""
        text = checked_parameters(request, "hours")["hours"] or str(min(nodes.SPANS))
        if text not in {str(hours) for hours in nodes.SPANS}:
            raise ValidationError({"hours": [f"Must be one of {', '.join(map(str, nodes.SPANS))}."]})
        node = get_object_or_404(nodes_visible_to(request.user), pk=pk)
        return Response(NodeHostOut(nodes.of_node(node, int(text))).data)


class JobHostsView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(operation_id="gpus_jobs_hosts", responses=JobHostsOut)
    def get(self, request: UserApiRequest, pk: int) -> Response:
        """Return the hosts of a job side by side over the last hour of its life, from the cluster's Prometheus now."""
        checked_parameters(request)
        job = get_object_or_404(selectors.jobs(request.user), pk=pk)
        hosts = job_hosts.of(job)
        return Response(JobHostsOut(hosts.report, context={"worst": hosts.worst}).data)
