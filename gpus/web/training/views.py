"""The steps of a training job, as a part of its page: read from Prometheus once it is shown.

gpus/_job_training.html    job, training (gpus.peers.lives.training.JobTraining), stats [Stat], more_falls,
                           falls [(time, Fall)] (the last MOST_FALLS), parts
                           [(title, definition, Share, is it known in whole percent only)]
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from common.requests import UserRequest
from gpus.peers.lives import selectors, training
from gpus.peers.lives.figures import Share
from gpus.peers.lives.training import JobTraining, State

MOST_FALLS = 20
NONE = "–"


class Stat(NamedTuple):
    name: str
    title: str
    text: str
    more: str


@require_GET
@login_required
def job(request: UserRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(selectors.jobs(request.user), pk=pk)
    steps = training.of(request.user, row)
    falls = [(datetime.fromtimestamp(fall.at, UTC), fall) for fall in steps.progress.falls]
    context = {
        "job": row,
        "training": steps,
        "stats": _stats(steps) if steps.state == State.EXPORTED else [],
        "falls": falls[-MOST_FALLS:],
        "more_falls": max(0, len(falls) - MOST_FALLS),
        "parts": _parts(steps),
    }
    return render(request, "gpus/_job_training.html", context)


def _stats(steps: JobTraining) -> list[Stat]:
    folded, seconds = steps.progress, steps.progress.step_seconds
    restarts = len(folded.falls)
    return [
        Stat("kept", "Steps kept", _number(steps.kept_per_hour), f"an hour; {_number(folded.kept)} altogether"),
        Stat("step", "Step time", NONE if seconds is None else _seconds(seconds), "median, from when the step changed"),
        Stat(
            "lost",
            "Taken back",
            _number(folded.lost),
            f"steps at least, by {restarts} restart{'' if restarts == 1 else 's'}"
            f"{f'; began again {folded.begun_again} ×' if folded.begun_again else ''}",
        ),
        Stat("last", "Step", _number(folded.last), f"of {_number(folded.made)} made in this time"),
    ]


def _parts(steps: JobTraining) -> list[tuple[str, str, Share, bool]]:
    return [
        ("Scheduling", "Of the time since it was queued, that in which all of its pods ran at once.",
         steps.goodput.scheduling, False),
        ("Runtime", "Of its GPU-hours with telemetry, those in which the GPU was active (not held idle).",
         steps.goodput.runtime, False),
        ("Program", "Of its running time, the steps kept × the median step time.",
         steps.program, True),
    ]  # fmt: skip


def _number(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:,.1f}"


def _seconds(value: float) -> str:
    if value < 1:
        return f"{1000 * value:,.0f} ms"
    return f"{value:,.1f} s" if value < 600 else f"{value / 60:,.0f} min"
