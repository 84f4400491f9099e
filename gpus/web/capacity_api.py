"""REST: what could start now in a cluster, and what waits for GPUs there. The twin of the fit page."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from clusters.reports.selectors import clusters_visible_to
from common.api import ApiView
from common.requests import UserApiRequest
from gpus.capacity import fit


class FreeOut(serializers.Serializer[Any]):
    free = serializers.IntegerField(help_text="GPUs.")
    nodes = serializers.IntegerField(help_text="That have just so many free, and take pods.")


class SizeOut(serializers.Serializer[Any]):
    gpus = serializers.IntegerField(help_text="Of one pod.")
    pods = serializers.IntegerField(help_text="Such pods that could start at once.")
    gang = serializers.IntegerField(help_text="GPUs of all of them.")
    stranded = serializers.IntegerField(help_text="Free GPUs that are of no use to such pods.")


PROFILE = "Of parts (MIG) or shares (shared) of GPUs, which are then counted in place of GPUs; empty: whole GPUs."


class ModelFitOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    profile = serializers.CharField(allow_blank=True, help_text=PROFILE)
    offered = serializers.IntegerField()
    free = serializers.IntegerField(help_text="On nodes that are ready and not cordoned.")
    by_free = FreeOut(many=True)
    sizes = SizeOut(many=True)


class GangOut(serializers.Serializer[Any]):
    system = serializers.ChoiceField(choices=["volcano", "kueue"])
    kind = serializers.CharField()
    namespace = serializers.CharField()
    name = serializers.CharField()
    queue = serializers.CharField(allow_blank=True)
    pods = serializers.ListField(
        child=serializers.ListField(child=serializers.IntegerField()), help_text="[how many pods, GPUs of each]"
    )
    gpus = serializers.IntegerField()
    since = serializers.DateTimeField(allow_null=True)
    reason = serializers.CharField(allow_blank=True, help_text="The scheduler's own words.")
    profile = serializers.CharField(allow_blank=True, help_text=PROFILE)
    fits = serializers.BooleanField(help_text="By free GPUs alone: quota, taints and priority are not judged.")
    verdict = serializers.CharField()


class QueueOut(serializers.Serializer[Any]):
    system = serializers.ChoiceField(choices=["volcano", "kueue"])
    name = serializers.CharField()
    waiting = serializers.IntegerField(help_text="Gangs.")
    held = serializers.IntegerField(allow_null=True, help_text="GPUs in use; null: it does not say.")
    limit = serializers.IntegerField(allow_null=True, help_text="GPUs; null: without a limit.")
    state = serializers.CharField(allow_blank=True)


class UnplacedOut(serializers.Serializer[Any]):
    namespace = serializers.CharField()
    name = serializers.CharField()
    gpus = serializers.IntegerField()


class FitOut(serializers.Serializer[Any]):
    offered = serializers.IntegerField(help_text="Whole GPUs.")
    free = serializers.IntegerField(help_text="On nodes that are ready and not cordoned.")
    out = serializers.IntegerField(help_text="Free on nodes that are not.")
    instances_offered = serializers.IntegerField(help_text="Parts and shares of GPUs, of any profile.")
    instances_free = serializers.IntegerField(help_text="On nodes that are ready and not cordoned.")
    largest = serializers.IntegerField(help_text="GPUs of the largest gang of whole nodes that could start now.")
    models = ModelFitOut(many=True)
    read_at = serializers.DateTimeField(allow_null=True, help_text="When schedulers' objects were last read.")
    systems = serializers.ListField(child=serializers.CharField(), help_text="Which of them the cluster serves.")
    refused = serializers.ListField(
        child=serializers.ListField(child=serializers.CharField()), help_text="[what could not be read, why]"
    )
    waiting = serializers.IntegerField(help_text="Gangs; `gangs` has at most 200 of them, the longest wait first.")
    gangs = GangOut(many=True)
    queues = QueueOut(many=True)
    unplaced = UnplacedOut(many=True, help_text="Pods that want GPUs and are on no node, at most 50.")


class FitView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(operation_id="clusters_gpu_fit", responses=FitOut)
    def get(self, request: UserApiRequest, cluster_pk: UUID) -> Response:
        """Free GPUs by node, the largest gang, and who waits: according to the API server and the schedulers' own."""
        fit_page = fit.page(request.user, get_object_or_404(clusters_visible_to(request.user), pk=cluster_pk))
        row = fit_page["waiting"]
        models = [
            {
                "name": model.name,
                "profile": model.profile,
                "offered": model.offered,
                "free": model.free,
                "by_free": [{"free": free, "nodes": nodes} for free, nodes in model.by_free],
                "sizes": model.sizes,
            }
            for model in fit_page["models"]
        ]
        same = ("offered", "free", "out", "instances_offered", "instances_free", "largest", "gangs", "unplaced")
        answer = {name: fit_page[name] for name in same} | {
            "models": models,
            "read_at": row.read_at if row else None,
            "systems": row.systems if row else [],
            "refused": row.refused if row else [],
            "waiting": row.count if row else 0,
            "queues": row.queues if row else [],
        }
        return Response(FitOut(answer).data)
