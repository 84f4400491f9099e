"""Pages about plans and rollouts. Each view is one URL and one template; what it shows is in jobs.reports.selectors.

Lists, approvals among them, are in jobs.web.list_views.

Contexts:
plan_new.html       form (PlanForm), why_not (empty: may plan somewhere)
plan.html           selectors.plan_page(): plan, summary, groups [{apply_class, changes [{kind, key, operator, before,
                    after, nodes, names}]}], left_out, standing {rule, approved_by, rejected_by, missing, is_approved},
                    approvals, strategy, rollout, freeze, can {verb: answers.Answer}, may_judge, has_approved,
                    late (why out of time), panels; after a refusal typed {verb, comment, at} and wrong {field: [text]}
rollout.html        selectors.rollout_page(): rollout, plan, strategy, total, done, segments [(status, count)],
                    out (ledger.Places of its cluster), failures, seconds_left, failing (Step), failing_events,
                    batches [{number, is_canary, counts [(status, count)], nodes, is_open, steps [{step, cells
                    [{state, seconds}]}], hidden}], stages, events, actions [{action (rollouts.Action),
                    is_permitted}], is_operator, freeze
_rollout_live.html  the same context: the live part of rollout.html, its title and, at the end, the top bar's word
rollout_ask.html    rollout, plan, verb, in_flight, reason, follows (counts.ActionConsequences), freeze
step.html           step, events, cells, stages, rollout, offers (like a rollout's actions, of this node), freeze
freezes.html        freezes [(freeze, why it cannot be lifted)], form, why_not (empty: may freeze something)
"""

from __future__ import annotations

import secrets
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods

from accounts.access import freshness
from accounts.permissions import ANYWHERE, may
from common import hooks
from common.errors import Invalid, Refusal
from common.requests import UserRequest
from jobs import tasks
from jobs.approvals import reviews, step_up
from jobs.calendars import targets
from jobs.forecast import strategy
from jobs.models import Plan, PlanRequest, Rollout, Step
from jobs.planning import plan_requests
from jobs.policy.judgement import PolicyJudgement
from jobs.reports import component_rights, counts, glass, plan_components, plan_page, rollout_page, selectors
from jobs.rollouts import freezes, rollout_actions
from jobs.web import outcome_messages
from jobs.web.forms import FreezeForm, PlanForm, StartForm

require_safe_or_post = require_http_methods(["GET", "HEAD", "POST"])
"""A verb's address that is only looked at, after a log-in that interrupted it, leads back to the page it belongs to."""


@require_safe_or_post
@login_required
def plan_new(request: UserRequest) -> HttpResponse:
    """GET shows the form; POST makes the plan, or shows the form again with what was typed and why it was refused."""
    form = PlanForm(request.POST if request.method == "POST" else None, user=request.user, initial=_initial(request))
    if request.method == "POST" and form.is_valid():
        try:
            made = plan_requests.submit(
                key=form.cleaned_data["form_key"],
                pool=form.cleaned_data["pool"],
                revision=form.cleaned_data["revision"],
                strategy=strategy.parse(form.strategy()),
                by=request.user,
                message=form.cleaned_data["message"],
            )
        except Refusal as refusal:
            _add_errors(form, refusal)
        else:
            if isinstance(made, plan_requests.PendingPlan):
                tasks.wake_planning()
                return redirect("jobs:plan_request", made.request.pk)
            messages.success(request, outcome_messages.plan_made(made.plan))
            return redirect("jobs:plan", made.plan.number)
    why_not = "" if may(request.user, "operator", ANYWHERE) else "This needs the role operator for some cluster."
    context = {"form": form, "why_not": why_not}
    return render(request, "jobs/plan_new.html", context, status=422 if form.errors else 200)


def _initial(request: UserRequest) -> dict[str, object]:
    given: dict[str, object] = {
        name: request.GET[name] for name in ("pool", "revision") if request.GET.get(name, "").isdigit()
    }
    given = _initial_of_plan(request) | given | {"form_key": secrets.token_urlsafe(16)}
    return given | ({"enforce": True} if request.GET.get("enforce") == "1" else {})


def _initial_of_plan(request: UserRequest) -> dict[str, object]:
    """`again=218`: what that plan was for, and its strategy. `request=<id>`: likewise of one that was not made."""
    number, request_id = request.GET.get("again", ""), request.GET.get("request", "")
    if request_id:
        try:
            row = selectors.visible_plan_requests(request.user).filter(pk=UUID(request_id)).first()
        except ValueError:
            return {}
        return _initial_of(row) if row else {}
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        return {}
    plan = selectors.visible_plans(request.user).filter(number=int(number)).first()
    if plan is None:
        return {}
    return _initial_of(plan)


def _initial_of(row: Plan | PlanRequest) -> dict[str, object]:
    named: dict[str, object] = {"pool": row.pool_id, "revision": row.revision_id, "message": row.message}
    return named | {name: row.strategy[name] for name in PlanForm.base_fields if name in row.strategy}


def _add_errors(form: PlanForm, refusal: Refusal) -> None:
    """A service's refusal, at the fields it names."""
    for name, texts in refusal.fields.items():
        field = name.removeprefix("strategy.")
        form.add_error(field if field in form.fields else None, texts)
    if not refusal.fields:
        form.add_error(None, str(refusal))


@require_GET
@login_required
def plan(request: UserRequest, number: int) -> HttpResponse:
    row = get_object_or_404(
        selectors.visible_plans(request.user).select_related("rollout__started_by", "rollout__glass"), number=number
    )
    context = plan_page.plan_page(row, request.user, request.GET.dict())
    return render(request, "jobs/plan.html", context | _of_request(request, row, context["standing"].policy))


def _of_request(request: UserRequest, row: Plan, policy: PolicyJudgement) -> dict[str, Any]:
    panels = sorted(hooks.plan_panels(request, row), key=lambda panel: panel.order)
    proved_at = freshness.proved_at(request)
    old = {"login_is_old": step_up.is_too_old(row, proved_at, policy), "proof_is_old": freshness.is_stale(proved_at)}
    return {"panels": panels, "glass": glass.offer_of_plan(row, request.user), **old}


@require_GET
@login_required
def plan_role(request: UserRequest, number: int, pk: int) -> HttpResponse:
    """The role that a component of a plan needs, as a file for kubectl."""
    row = get_object_or_404(selectors.visible_plans(request.user), number=number)
    part = get_object_or_404(row.components, pk=pk)
    authority = component_rights.authority_of(part)
    if authority is None:
        raise Http404
    answer = HttpResponse(component_rights.role_yaml(part, authority), content_type="application/yaml")
    answer["Content-Disposition"] = f'attachment; filename="{component_rights.role_file_name(part)}"'
    return answer


TYPED = ("comment", "consent", "at", "reason", "change_record")
"""Fields of a plan's page that a refusal shows again. A confirmation is typed again."""
VERDICTS = ("approve", "request-changes", "reject")


@require_safe_or_post
@login_required
def plan_act(request: UserRequest, number: int, verb: str) -> HttpResponse:
    """request, approve, reject, retract, withdraw or start; a refusal shows the page again, with what was typed.

    `verdict` is the page's form, where approve or reject is chosen.
    """
    if request.method != "POST":
        return redirect("jobs:plan", number)
    if verb == "verdict":
        chosen = request.POST.get("verdict", "")
        verb = chosen if chosen in VERDICTS else ""
    row = get_object_or_404(selectors.visible_plans(request.user), number=number)
    comment, digest = request.POST.get("comment", ""), request.POST.get("digest", "")
    try:
        if verb == "request":
            row = reviews.request(row, by=request.user, message=comment)
        elif verb == "approve":
            consent = request.POST.get("consent", "")
            proved_at = freshness.proved_at(request)
            row = reviews.approve(
                row, by=request.user, digest=digest, comment=comment, consent=consent, proved_at=proved_at
            )
        elif verb == "request-changes":
            row = reviews.request_changes(row, by=request.user, digest=digest, comment=comment)
        elif verb == "reject":
            row = reviews.reject(row, by=request.user, digest=digest, comment=comment)
        elif verb == "retract":
            row = reviews.retract(row, by=request.user)
        elif verb == "withdraw":
            row = reviews.withdraw(row, by=request.user, comment=comment)
        elif verb == "start":
            return _start(request, row)
        else:
            raise Invalid("No verdict was chosen.", fields={"verdict": [f"Choose one of {', '.join(VERDICTS)}."]})
    except Refusal as refusal:
        return plan_refused(request, number, verb, refusal)
    messages.success(request, outcome_messages.plan_message(row, verb))
    return redirect("jobs:plan", number)


def plan_refused(request: UserRequest, number: int, verb: str, refusal: Refusal) -> HttpResponse:
    """The plan as it is now; errors of a field are shown beside it, the rest on top, and nothing typed is lost."""
    row = get_object_or_404(selectors.visible_plans(request.user), number=number)
    if not refusal.fields:
        messages.error(request, str(refusal))
    typed = {"verb": verb} | {name: request.POST.get(name, "") for name in TYPED}
    context = plan_page.plan_page(row, request.user) | {"typed": typed, "wrong": refusal.fields}
    context |= _of_request(request, row, context["standing"].policy)
    return render(request, "jobs/plan.html", context, status=refusal.status)


def _start(request: UserRequest, row: Plan) -> HttpResponse:
    form = StartForm(request.POST)
    if not form.is_valid():
        raise Invalid("The time cannot be read.", fields={"at": ["Write 2026-11-21 22:00, in UTC."]})
    rollout = rollout_actions.start(row, by=request.user, at=form.cleaned_data["at"])
    tasks.wake(rollout.pk)
    messages.success(request, outcome_messages.rollout_started(rollout))
    return redirect("jobs:rollout", rollout.number)


def _show_refusal(request: UserRequest, refusal: Refusal) -> None:
    details = " ".join(text for texts in refusal.fields.values() for text in texts)
    messages.error(request, f"{refusal} {details}".strip())


@require_GET
@login_required
def rollout(request: UserRequest, number: int) -> HttpResponse:
    row = get_object_or_404(selectors.visible_rollouts(request.user), number=number)
    panels = sorted(hooks.rollout_panels(request, row), key=lambda panel: panel.order)
    return render(request, "jobs/rollout.html", rollout_page.rollout_page(row, request.user) | {"panels": panels})


@require_GET
@login_required
def rollout_live(request: UserRequest, number: int) -> HttpResponse:
    """The live part alone, for polling; at a final state it carries no trigger any more, and the page says so."""
    row = get_object_or_404(selectors.visible_rollouts(request.user), number=number)
    return render(request, "jobs/_rollout_live.html", rollout_page.rollout_page(row, request.user))


@require_GET
@login_required
def step(request: UserRequest, number: int, pk: UUID) -> HttpResponse:
    parent = get_object_or_404(selectors.visible_rollouts(request.user), number=number)
    related = ("node", "plan_node__change_set", "plan_component")
    row = get_object_or_404(Step.objects.select_related(*related), pk=pk, rollout=parent)
    context = {
        "rollout": parent,
        "step": row,
        "events": rollout_page.events_of(row),
        "cells": rollout_page.stage_cells(row),
        "stages": [name for name, _ in rollout_page.STAGES],
        "offers": rollout_page.offers_for(parent, row, request.user),
        "freeze": targets.active_freeze(parent.cluster, parent.plan.pool_id),
    }
    if row.is_component:
        context["shown"] = plan_components.part_of_step(row)
        return render(request, "jobs/component_step.html", context)
    return render(request, "jobs/step.html", context)


@require_safe_or_post
@login_required
def rollout_act(request: UserRequest, number: int, verb: str) -> HttpResponse:
    """pause, resume, go-on, abort, retry-failed, skip, revert or keep-cordoned; `step` names one node, where
    it is about one.

    Abort and revert of several nodes are asked about first, and act once `confirmed` comes with them. With `back=step`
    the answer leads to that node's page, where it was asked.
    """
    if request.method != "POST":
        return redirect("jobs:rollout", number)
    row = get_object_or_404(selectors.visible_rollouts(request.user), number=number)
    named_step: Step | None = None
    in_flight = request.POST.get("in_flight", "finish")
    try:
        named_step = _named_step(row, request.POST.get("step", ""))
        if named_step is None and verb in ASKED and "confirmed" not in request.POST:
            rollout_actions.check_possible(row, verb, by=request.user)
            follows = counts.action_consequences(row, verb, in_flight)
            if follows.nodes > 1:
                return _ask_first(request, row, verb, follows)
        if verb == "pause":
            rollout_actions.pause(row, by=request.user)
        elif verb == "resume":
            rollout_actions.resume(row, by=request.user)
        elif verb == "go-on":
            rollout_actions.go_on(row, by=request.user)
        elif verb == "abort":
            rollout_actions.abort(row, by=request.user, in_flight=in_flight)
        elif verb == "retry-failed":
            rollout_actions.retry_failed(row, by=request.user, step=named_step)
        elif verb in ("skip", "keep-cordoned"):
            if named_step is None:
                raise Invalid("No node was chosen.", fields={"step": ["Choose a node."]})
            (rollout_actions.skip if verb == "skip" else rollout_actions.keep_cordoned)(
                row, named_step, by=request.user
            )
        else:
            rollout_actions.revert(row, by=request.user, step=named_step, reason=request.POST.get("reason", ""))
        tasks.wake(row.pk)
        messages.success(request, outcome_messages.rollout_message(row, verb, named_step, in_flight=in_flight))
    except Refusal as refusal:
        _show_refusal(request, refusal)
    if request.POST.get("back") == "step" and named_step is not None:
        return redirect("jobs:step", number, named_step.pk)
    return redirect("jobs:rollout", number)


ASKED = ("abort", "revert")
"""What acts on many nodes at once: the page says what will happen, and asks."""


def _ask_first(request: UserRequest, row: Rollout, verb: str, follows: counts.ActionConsequences) -> HttpResponse:
    context = {
        "rollout": row,
        "plan": row.plan,
        "verb": verb,
        "in_flight": "revert" if request.POST.get("in_flight") == "revert" else "finish",
        "reason": request.POST.get("reason", ""),
        "follows": follows,
        "freeze": targets.active_freeze(row.cluster, row.plan.pool_id),
    }
    return render(request, "jobs/rollout_ask.html", context)


def _named_step(row: Rollout, text: str) -> Step | None:
    if not text:
        return None
    try:
        return get_object_or_404(Step, pk=UUID(text), rollout=row)
    except ValueError as error:
        raise Invalid("No such node in this rollout.", fields={"step": ["Must be a step's id."]}) from error


@require_safe_or_post
@login_required
def freeze_list(request: UserRequest) -> HttpResponse:
    form = FreezeForm(request.POST if request.method == "POST" else None, user=request.user)
    if request.method == "POST" and form.is_valid():
        try:
            row = freezes.freeze(by=request.user, **form.cleaned_data)
        except Refusal as refusal:
            for name, texts in (refusal.fields or {"": [str(refusal)]}).items():
                form.add_error(name or None, texts)
        else:
            messages.success(request, outcome_messages.freeze_set(row))
            return redirect("jobs:freezes")
    standing = [(row, freezes.reason_not_to_lift(row, request.user)) for row in selectors.active_freezes(request.user)]
    context = {"form": form, "freezes": standing, "why_not": freezes.reason_not_to_freeze(request.user)}
    return render(request, "jobs/freezes.html", context, status=422 if form.errors else 200)


@require_safe_or_post
@login_required
def freeze_lift(request: UserRequest, pk: int) -> HttpResponse:
    if request.method != "POST":
        return redirect("jobs:freezes")
    try:
        row = freezes.lift(get_object_or_404(selectors.visible_freezes(request.user), pk=pk), by=request.user)
        messages.success(request, outcome_messages.freeze_lifted(row))
    except Refusal as refusal:
        _show_refusal(request, refusal)
    return redirect("jobs:freezes")
