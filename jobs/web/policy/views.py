"""Pages of the approval policy.

Contexts:
policy.html          text, message, errors {field: [text]}, trial, migrated (each or None), may_begin_with_rules,
                     active, versions, waiting, facts, why_not
policy_version.html  state (VersionState), lines of the difference, why_not (against its activation), may_end
"""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from common.errors import NotAllowed, Refusal
from common.requests import UserRequest
from jobs.approvals import policybook, rules_as_policy
from jobs.models import PolicyVersion
from jobs.policy import fact_types, judgement, policy_text
from jobs.reports import policy_trial, policy_versions

SHOWN_VERSIONS = 50
require_safe_or_post = require_http_methods(["GET", "HEAD", "POST"])


@require_safe_or_post
@login_required
def policy(request: UserRequest) -> HttpResponse:
    """Show and edit the text; `verb` is try or propose."""
    active = judgement.active_version()
    typed = request.POST if request.method == "POST" else {}
    text = typed.get("text", active.text if active else policy_text.EMPTY).replace("\r\n", "\n")
    why_not = policybook.reason_not_to_propose(request.user)
    errors: dict[str, list[str]] = {}
    trial = migrated = None
    if request.method == "POST":
        if why_not:
            raise NotAllowed(why_not)
        try:
            if typed.get("verb") == "try":
                trial = policy_trial.try_policy(text, request.user)
            else:
                row, _ = policybook.propose(by=request.user, text=text, message=typed.get("message", ""))
                messages.success(request, f"You proposed v{row.number}. Another administrator can activate it.")
                return redirect("jobs:policy_version", row.number)
        except Refusal as refusal:
            errors = refusal.fields or {"text": [str(refusal)]}
    elif request.GET.get("start") == "rules" and not why_not:
        try:
            migrated = rules_as_policy.policy_from_rules()
            text = migrated.text
        except Refusal as refusal:
            errors = {"text": [str(refusal)]}
    rows = list(PolicyVersion.objects.select_related("proposed_by", "activated_by")[:SHOWN_VERSIONS])
    states = policy_versions.version_states(rows)
    context: dict[str, Any] = {
        "text": text,
        "message": typed.get("message", ""),
        "errors": errors,
        "trial": trial,
        "migrated": migrated,
        "may_begin_with_rules": not why_not and not _has_rules(active),
        "active": active,
        "unsound": judgement.sound_policy(active)[1] if active else "",
        "versions": states,
        "waiting": [state for state in states if state.change],
        "facts": [(name, kind, meaning.replace("`", "")) for name, kind, meaning in fact_types.documented()],
        "classes": list(fact_types.CLASSES),
        "why_not": why_not,
    }
    return render(request, "jobs/policy.html", context, status=422 if errors else 200)


def _has_rules(active: PolicyVersion | None) -> bool:
    """Return whether a policy with rules is active, which the approval rules as a text would take the place of."""
    policy = judgement.sound_policy(active)[0] if active else None
    return policy is not None and bool(policy.rules)


@require_safe
@login_required
def policy_version(request: UserRequest, number: int) -> HttpResponse:
    row = get_object_or_404(PolicyVersion.objects.select_related("proposed_by", "activated_by"), number=number)
    [state] = policy_versions.version_states([row])
    context = {
        "state": state,
        "row": row,
        "lines": policy_versions.difference_of(row),
        "why_not": state.reason_not_to_activate(request.user),
        "may_end": not policybook.reason_not_to_propose(request.user),
        "is_own": row.proposed_by_id == request.user.pk,
    }
    return render(request, "jobs/policy_version.html", context)


@require_safe_or_post
@login_required
def policy_act(request: UserRequest, number: str, verb: str) -> HttpResponse:
    if request.method != "POST":
        return redirect("jobs:policy_version", number)
    row = get_object_or_404(PolicyVersion, number=number)
    try:
        if verb == "activate":
            policybook.activate(row, by=request.user)
            messages.success(request, f"v{number} is active: plans in review and approved ones were judged by it.")
        else:
            policybook.withdraw(row, by=request.user)
            messages.success(request, f"The proposal of v{number} has ended.")
    except Refusal as refusal:
        messages.error(request, str(refusal))
    return redirect("jobs:policy_version", number)
