"""The page on which an administrator says where a cluster's telemetry comes from. What its template gets:

gpus/source.html    posts to its own address with `intent=test` (reads once, stores nothing) or `intent=save`
    cluster, source
    form            SourceForm; `theirs` [(label, value)]: what another party saved meanwhile
    verdict         sources.Verdict, after a test
    reads           what is read now, in words
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from clusters.models import Cluster
from clusters.reports.selectors import clusters_visible_to
from clusters.web.forms import add_errors
from common.errors import Refusal, Stale
from common.requests import UserRequest
from gpus.models import TelemetrySource
from gpus.reports import data_quality
from gpus.services import sources

Kind, Auth = TelemetrySource.Kind, TelemetrySource.Auth
_PEM = {"rows": 4, "spellcheck": "false"}


class SourceForm(forms.Form):
    """Carries what is typed; `gpus.services.sources` judges it."""

    is_enabled = forms.BooleanField(required=False, label="Read it", help_text="Off: nothing is read.")
    kind = forms.ChoiceField(choices=Kind.choices, widget=forms.RadioSelect, label="Source")
    namespace = forms.CharField(
        required=False,
        max_length=63,
        label="Exporters' namespace",
        help_text="Empty: exporters of every namespace, by their labels. Any pod can carry those labels.",
    )
    service = forms.CharField(
        required=False,
        max_length=200,
        label="Service",
        help_text="namespace/name:port, or namespace/https:name:port. Needs the right to its proxy.",
    )
    url = forms.CharField(
        required=False, max_length=500, label="Address", help_text="https://host:port, without /api/v1."
    )
    selector = forms.CharField(
        required=False,
        max_length=200,
        label="Label matchers",
        help_text='Where one Prometheus serves several clusters: cluster="a"',
    )
    auth = forms.ChoiceField(choices=Auth.choices, label="Authentication")
    username = forms.CharField(required=False, max_length=200, label="User name")
    secret = forms.CharField(
        required=False,
        strip=False,
        max_length=sources.LONGEST_SECRET,
        label="Token, password or key",
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "autocomplete": "off"}),
        help_text="Goes to this address alone, over https, and is never shown again.",
    )
    forget_secret = forms.BooleanField(required=False, label="Remove the stored one")
    certificate = forms.CharField(
        required=False,
        max_length=131_072,
        label="Client certificate",
        widget=forms.Textarea(attrs=_PEM),
        help_text="PEM; its key is the secret.",
    )
    ca = forms.CharField(
        required=False,
        max_length=131_072,
        label="Certificate authority",
        widget=forms.Textarea(attrs=_PEM),
        help_text="PEM. Empty: an authority that this machine trusts.",
    )
    version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, source: TelemetrySource, **how: Any) -> None:
        super().__init__(*args, **how)
        if source.secret:
            self.fields["secret"].help_text = "One is stored. Empty: it stays."
        else:
            del self.fields["forget_secret"]

    def given(self) -> dict[str, Any]:
        """Return the service's arguments; `secret` None keeps the stored one."""
        data = self.cleaned_data
        secret = "" if data.get("forget_secret") else data["secret"] or None
        return {name: data[name] for name in sources.FIELDS} | {"secret": secret}


@never_cache
@sensitive_post_parameters("secret")
@require_http_methods(["GET", "POST"])
@login_required
def source(request: UserRequest, pk: UUID) -> HttpResponse:
    """Show, test or save the source's form. A refused or tested form returns its input, with the secret, unstored."""
    cluster = get_object_or_404(clusters_visible_to(request.user), pk=pk)
    sources.may_change(request.user, cluster)
    row = sources.of_cluster(cluster)
    if request.method == "GET":
        initial = {name: getattr(row, name) for name in sources.FIELDS} | {"version": row.version}
        return _page(request, cluster, row, SourceForm(initial=initial, source=row))
    form = SourceForm(request.POST, source=row)
    if not form.is_valid():
        return _page(request, cluster, row, form, status=422)
    try:
        if request.POST.get("intent") == "test":
            verdict = sources.probe(sources.filled(row, **form.given()), by=request.user)
            return _page(request, cluster, row, form, verdict=verdict)
        sources.update(row, by=request.user, version=form.cleaned_data["version"] or 0, **form.given())
    except Stale as refusal:
        return _refused(request, cluster, row, form, refusal)
    except Refusal as refusal:
        add_errors(form, refusal)
        return _page(request, cluster, row, form, status=refusal.status)
    messages.success(request, f"The telemetry source of {cluster} is saved. It is read within seconds.")
    return redirect("gpus:cluster", cluster.pk)


def _refused(
    request: UserRequest, cluster: Cluster, row: TelemetrySource, form: SourceForm, refusal: Stale
) -> HttpResponse:
    """Another party saved meanwhile: their change is shown beside what was typed, and saving again is a choice."""
    row.refresh_from_db()
    typed = form.cleaned_data
    theirs = [
        (form.fields[name].label, str(getattr(row, name)) or "empty")
        for name in sources.FIELDS
        if getattr(row, name) != typed[name]
    ]
    who = f" by {row.changed_by}" if row.changed_by else ""
    form.add_error(None, f"It was saved{who} meanwhile. Your input is kept; saving again replaces theirs.")
    form.data = {**dict(form.data.items()), "version": str(row.version)}
    return _page(request, cluster, row, form, theirs=theirs, status=refusal.status)


def _page(
    request: UserRequest,
    cluster: Cluster,
    row: TelemetrySource,
    form: SourceForm,
    *,
    verdict: sources.ProbeResult | None = None,
    theirs: list[tuple[Any, str]] | None = None,
    status: int = 200,
) -> HttpResponse:
    context = {
        "cluster": cluster,
        "source": row,
        "form": form,
        "verdict": verdict,
        "theirs": theirs,
        "reads": data_quality.reads(row),
    }
    return render(request, "gpus/source.html", context, status=status)
