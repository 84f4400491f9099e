"""Pages of the rules of alerts. Contexts:

notices/rules.html      rows [EffectiveRule], cluster (None: everywhere), clusters, not_judged, may_change, panels
notices/rule.html       holding, cluster, form, setting, may_change
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from clusters.models import Cluster
from clusters.reports.selectors import clusters_visible_to
from common import hooks
from common.alerting import AlertRule
from common.errors import Refusal, Stale
from common.requests import UserRequest, posted_version
from notices.alerts import rulebook
from notices.models import SEVERITIES, RuleSetting
from notices.reports import selectors


class RuleForm(forms.Form):
    is_enabled = forms.BooleanField(required=False, label="In use", help_text="Off: its open alerts are closed.")
    severity = forms.ChoiceField(choices=SEVERITIES)
    threshold = forms.FloatField(required=False)
    opens_after = forms.IntegerField(
        min_value=0,
        max_value=rulebook.LONGEST,
        label="Opens after",
        help_text="Seconds for which the condition must persist.",
    )
    closes_after = forms.IntegerField(
        min_value=0,
        max_value=rulebook.LONGEST,
        label="Closes after",
        help_text="Seconds for which it must stay resolved.",
    )
    version = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, *args: Any, rule: AlertRule, **how: Any) -> None:
        super().__init__(*args, **how)
        if rule.threshold is None:
            del self.fields["threshold"]
        else:
            limits = rule.threshold
            field = self.fields["threshold"]
            field.required, field.label = True, f"Limit, in {limits.unit}"
            field.help_text = f"{limits.means[:1].upper()}{limits.means[1:]}: from {limits.least:g} to {limits.most:g}."


@require_GET
@login_required
def rules(request: UserRequest) -> HttpResponse:
    visible = clusters_visible_to(request.user)
    cluster = _cluster(request)
    context = {
        "rows": rulebook.of_cluster(cluster.pk if cluster else None),
        "cluster": cluster,
        "not_judged": selectors.not_judged(cluster.pk if cluster else None),
        "clusters": list(visible.order_by("name").values_list("pk", "name")),
        "may_change": rulebook.may_change(request.user, cluster),
        "panels": sorted(hooks.alert_panels(request), key=lambda panel: panel.order),
    }
    return render(request, "notices/rules.html", context)


def _cluster(request: UserRequest) -> Cluster | None:
    """The one that the address asks for; 404 for one that is not there for this person."""
    name = request.GET.get("cluster", "")
    return get_object_or_404(clusters_visible_to(request.user), name=name) if name else None


@require_http_methods(["GET", "POST"])
@login_required
def rule(request: UserRequest, name: str) -> HttpResponse:
    alert_rule, cluster = rulebook.named(name), _cluster(request)
    setting = rulebook.setting_of(alert_rule, cluster)
    if request.method == "GET":
        initial = rulebook.field_values(setting) | {"version": setting.version}
        return _page(request, alert_rule, cluster, setting, RuleForm(initial=initial, rule=alert_rule))
    rulebook.require_change(request.user, cluster)
    form = RuleForm(request.POST, rule=alert_rule)
    if not form.is_valid():
        return _page(request, alert_rule, cluster, setting, form, status=422)
    data = {key: value for key, value in form.cleaned_data.items() if key != "version"}
    try:
        rulebook.change(alert_rule, cluster, by=request.user, version=form.cleaned_data["version"], **data)
    except Refusal as refusal:
        for key, reasons in refusal.fields.items():
            form.add_error(key if key in form.fields else None, " ".join(reasons))
        if not refusal.fields:
            form.add_error(None, str(refusal))
        if isinstance(refusal, Stale):
            form.data = request.POST.copy()
            form.data["version"] = str(setting.version)
        return _page(request, alert_rule, cluster, setting, form, status=refusal.status)
    messages.success(request, f"“{alert_rule.title}” is set {f'for {cluster}' if cluster else 'for every cluster'}.")
    return redirect(_address(cluster))


@require_POST
@login_required
def rule_reset(request: UserRequest, name: str) -> HttpResponse:
    """Back to what holds everywhere, or to what Setpoint brings."""
    alert_rule, cluster = rulebook.named(name), _cluster(request)
    rulebook.reset(alert_rule, cluster, by=request.user, version=posted_version(request))
    again = "as it is everywhere" if cluster else "at its default"
    messages.success(request, f"“{alert_rule.title}” is {again} again.")
    return redirect(_address(cluster))


def _address(cluster: Cluster | None) -> str:
    return reverse("notices:rules") + (f"?cluster={cluster.name}" if cluster else "")


def _page(
    request: UserRequest,
    alert_rule: AlertRule,
    cluster: Cluster | None,
    setting: RuleSetting,
    form: RuleForm,
    *,
    status: int = 200,
) -> HttpResponse:
    pk: UUID | None = cluster.pk if cluster else None
    context = {
        "holding": next(effective for effective in rulebook.of_cluster(pk) if effective.rule.name == alert_rule.name),
        "cluster": cluster,
        "setting": setting,
        "form": form,
        "may_change": rulebook.may_change(request.user, cluster),
        "address": _address(cluster),
    }
    return render(request, "notices/rule.html", context, status=status)
