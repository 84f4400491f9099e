"""The host beside the GPUs, as parts of the pages of a node and of a job: read from Prometheus once they are shown.

gpus/_host.html         host (gpus.reports.hosts.nodes.NodeHost), hours, lines, not_exported, lacks, disks, interfaces,
                        ports
gpus/_job_hosts.html    job, hosts (gpus.peers.lives.hosts.JobHosts), rows [(SideHost, its node or None, cells)]
"""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from clusters.reports.selectors import nodes_visible_to
from common.requests import UserRequest
from gpus.peers.lives import hosts as job_hosts
from gpus.peers.lives import selectors
from gpus.reports.hosts import nodes, words


@require_GET
@login_required
def node(request: UserRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(nodes_visible_to(request.user), pk=pk)
    hours = {str(hours): hours for hours in nodes.SPANS}.get(request.GET.get("hours", ""), min(nodes.SPANS))
    host = nodes.of_node(row, hours)
    context = {"host": host, "node": row, "hours": list(nodes.SPANS)}
    if (figures := host.figures) is not None:
        not_exported, lacks = words.lacks(figures)
        context |= {
            "lines": words.lines(figures, hours),
            "not_exported": not_exported,
            "lacks": lacks,
            "disks": [words.disk(disk) for disk in figures.disks],
            "interfaces": [words.link(interface) for interface in figures.interfaces],
            "ports": [words.link(port) for port in figures.ports],
        }
    return render(request, "gpus/_host.html", context)


@require_GET
@login_required
def job(request: UserRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(selectors.jobs(request.user), pk=pk)
    hosts = job_hosts.of(row)
    names = [host.name for host in hosts.report.hosts]
    by_name = {
        node.name: node for node in nodes_visible_to(request.user).filter(cluster=row.cluster_id, name__in=names)
    }
    columns = hosts.columns
    rows = [
        (
            host,
            by_name.get(host.name),
            [
                (
                    column.title,
                    words.worded(column.unit, host.value(column.name)),
                    hosts.worst.get(column.name) == host.name,
                )
                for column in columns
            ],
        )
        for host in hosts.report.hosts
    ]
    context = {"job": row, "hosts": hosts, "columns": columns, "rows": rows, "most": nodes.MOST_HOSTS}
    return render(request, "gpus/_job_hosts.html", context)
