"""REST of the steps of a training job: the numbers of the part of its page, read from Prometheus at once."""

from __future__ import annotations

from datetime import UTC, datetime

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.response import Response

from common.api import ApiView
from common.requests import UserApiRequest
from gpus.peers.lives import selectors, training
from gpus.peers.lives.training import JobTraining, State
from gpus.reports.training.progress import Fall
from gpus.web.api import checked_parameters
from gpus.web.jobs_api import GpuJobShareOut


def _number(text: str, source: str) -> serializers.FloatField:
    return serializers.FloatField(allow_null=True, help_text=text, source=source)


class TrainingFallOut(serializers.Serializer[Fall]):
    at = serializers.SerializerMethodField(help_text="Time of the first sample after it.")
    highest = serializers.FloatField(help_text="Step before it, at least.")
    resumed = serializers.FloatField(help_text="First step after it that a sample has.")
    lost = serializers.FloatField()

    @extend_schema_field(serializers.DateTimeField())
    def get_at(self, fall: Fall) -> datetime:
        return datetime.fromtimestamp(fall.at, UTC)


class TrainingGoodputOut(serializers.Serializer[JobTraining]):
    """Parts that are not known are null, with the reason: never 0 nor 100."""

    scheduling = GpuJobShareOut(source="goodput.scheduling")
    runtime = GpuJobShareOut(source="goodput.runtime")
    program = GpuJobShareOut(help_text="Of its running time, the steps kept times the median step time.")
    whole = GpuJobShareOut(help_text="Scheduling times runtime times program; null where any of them is.")
    known_parts = serializers.ListField(child=serializers.ChoiceField(choices=["scheduling", "runtime", "program"]))


class JobTrainingOut(serializers.Serializer[JobTraining]):
    """Figures are null unless `state` is `exported`."""

    state = serializers.ChoiceField(
        choices=[state.value for state in State],
        help_text="`short`: exported, and too little or of several runs; `unread`: Prometheus was not read.",
    )
    why = serializers.CharField(allow_blank=True, help_text="Of every state but `exported`.")
    start = serializers.DateTimeField(help_text="Of the part of its life that was read: seven days at most.")
    end = serializers.DateTimeField(source="span.end")
    resolution_seconds = serializers.IntegerField(
        source="span.step", help_text="Between two samples: what happens within is not seen."
    )
    prometheus = serializers.CharField(source="title", allow_blank=True, help_text="Which Prometheus was read.")
    warnings = serializers.ListField(child=serializers.CharField(), help_text="Of Prometheus, on incomplete answers.")
    metric = serializers.CharField(source="metric.name", default="", help_text="By which the step is exported.")
    trainer = serializers.CharField(source="metric.trainer", default="")
    ranks = serializers.IntegerField(help_text="That exported it at once, at most.")
    step = _number("The last one.", "known.last")
    steps_made = _number("In this time, those that were taken back among them.", "known.made")
    steps_kept = _number("Those that no restart took back, since the run began last.", "known.kept")
    steps_lost = _number("Taken back by restarts: at least so many.", "known.lost")
    steps_kept_per_hour = _number("Of running time; null where the program's part is.", "kept_per_hour")
    step_seconds = _number("Median time of a step.", "known.step_seconds")
    running_seconds = _number(
        "In which all of its pods ran, and Prometheus scraped any of them; null where that is not known.", "ran_seconds"
    )
    restarts = TrainingFallOut(many=True, source="known.latest_falls", default=list, help_text="The last 100.")
    goodput = TrainingGoodputOut(source="*")


class JobTrainingView(ApiView):
    request: UserApiRequest
    scope_for = {"GET": "read"}

    @extend_schema(operation_id="gpus_jobs_training", responses=JobTrainingOut)
    def get(self, request: UserApiRequest, pk: int) -> Response:
        """Return the steps of a training job over its life, from the cluster's Prometheus now."""
        checked_parameters(request)
        job = get_object_or_404(selectors.jobs(request.user), pk=pk)
        return Response(JobTrainingOut(training.of(request.user, job)).data)
