"""Pages of fleet runs. A refusal shows the page again, with what was typed.

Contexts:
fleet_runs.html     listing (page of FleetRun)
fleet_run_new.html  form (FleetRunForm), plans [(Plan, its ring)], errors {field: texts}
fleet_run.html      run, rings (RingReport), can {verb: reason}, drafts [Plan], wrong {verb, reason, fields}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET

from accounts.permissions import restrict
from common import keyset
from common.errors import Refusal
from common.requests import UserRequest
from jobs import tasks
from jobs.models import FleetRun, Plan
from jobs.reports import fleet_runs as reports
from jobs.reports import selectors
from jobs.rollouts import fleet_runs
from jobs.web import views
from jobs.web.fleet.forms import FleetRunForm

MOST_DRAFTS = 200
ORDERS = keyset.Orders({"number": ["number"]}, default="-number", descending=frozenset({"number"}))
DONE = {
    "request": "Approval of its drafts is requested.",
    "start": "Started: the first ring begins once its plans are approved.",
    "hold": "Held: nothing new starts, and what is in progress finishes.",
    "release": "It continues, in your name.",
    "open-ring": "The next ring is open.",
    "leave-out": "The plan was left out: the run no longer waits for it.",
    "add": "The plan is in the ring.",
    "cancel": "Cancelled: what had not started is withdrawn.",
}


@require_GET
@login_required
def fleet_run_list(request: UserRequest) -> HttpResponse:
    page = keyset.page(
        selectors.visible_fleet_runs(request.user), ORDERS.chosen(""),
        after=request.GET.get("after", ""), before=request.GET.get("before", ""),
    )  # fmt: skip
    return render(request, "jobs/fleet_runs.html", {"listing": {"page": page}})


@views.require_safe_or_post
@login_required
def fleet_run_new(request: UserRequest) -> HttpResponse:
    drafts = _drafts(request)
    form, status = FleetRunForm.read(request.POST), 200
    errors: Mapping[str, Any] = {}
    if request.method == "POST":
        try:
            run = fleet_runs.create(by=request.user, name=form.name, wanted=form.wanted(drafts))
        except Refusal as refusal:
            errors, status = refusal.fields or {"rings": [str(refusal)]}, refusal.status
        else:
            messages.success(request, f"{run} is made. Request approval of its plans, then start it.")
            return redirect("jobs:fleet_run", run.number)
    plans = [(plan, form.ring_of.get(str(plan.pk), "")) for plan in drafts]
    return render(request, "jobs/fleet_run_new.html", {"form": form, "plans": plans, "errors": errors}, status=status)


@require_GET
@login_required
def fleet_run(request: UserRequest, number: int) -> HttpResponse:
    return _page(request, _visible(request, number), {})


@views.require_safe_or_post
@login_required
def fleet_run_act(request: UserRequest, number: int, verb: str) -> HttpResponse:
    if request.method != "POST":
        return redirect("jobs:fleet_run", number)
    run = _visible(request, number)
    try:
        _carry_out(request, run, verb)
    except Refusal as refusal:
        texts = [text for texts in refusal.fields.values() for text in texts]
        wrong = {"verb": verb, "text": " ".join([str(refusal), *texts]), "reason": request.POST.get("reason", "")}
        return _page(request, _visible(request, number), wrong, refusal.status)
    tasks.wake_fleet()
    messages.success(request, DONE[verb])
    return redirect("jobs:fleet_run", number)


def _carry_out(request: UserRequest, run: FleetRun, verb: str) -> None:
    by, reason = request.user, request.POST.get("reason", "")
    if verb in ("leave-out", "add"):
        number = request.POST.get("plan", "")
        is_number = number.isascii() and number.isdigit() and len(number) < 10
        plan = get_object_or_404(selectors.visible_plans(by), number=int(number) if is_number else 0)
        if verb == "leave-out":
            fleet_runs.leave_out(run, plan, by=by, reason=reason)
        else:
            ring = request.POST.get("ring", "")
            fleet_runs.add(
                run, plan, by=by, ring=int(ring) if ring.isascii() and ring.isdigit() and len(ring) < 4 else 0
            )
    elif verb in ("hold", "open-ring", "cancel"):
        acts = {"hold": fleet_runs.hold, "open-ring": fleet_runs.open_ring, "cancel": fleet_runs.cancel}
        acts[verb](run, by=by, reason=reason)
    elif verb == "request":
        fleet_runs.request(run, by=by)
    elif verb == "start":
        fleet_runs.start(run, by=by)
    else:
        fleet_runs.release(run, by=by)


def _page(request: UserRequest, run: FleetRun, wrong: Mapping[str, str], status: int = 200) -> HttpResponse:
    state, person = fleet_runs.reasons_of_state(run), fleet_runs.reasons_of_person(run, request.user)
    context = {
        "run": run,
        "rings": reports.ring_reports(run, request.user),
        "can": {verb.replace("-", "_"): person[verb] or state[verb] for verb in state},
        "is_over": run.status not in fleet_runs.OPEN,
        "drafts": _drafts(request) if run.status in fleet_runs.OPEN else [],
        "wrong": wrong,
    }
    return render(request, "jobs/fleet_run.html", context, status=status)


def _visible(request: UserRequest, number: int) -> FleetRun:
    return get_object_or_404(selectors.visible_fleet_runs(request.user), number=number)


def _drafts(request: UserRequest) -> list[Plan]:
    """Drafts that this person may put into a run, newest first."""
    rows = restrict(selectors.visible_plans(request.user), request.user, role="operator")
    rows = rows.in_time().filter(status=Plan.Status.DRAFT, fleet_run=None)
    return [plan for plan in rows[:MOST_DRAFTS] if not plan.is_blocked]
