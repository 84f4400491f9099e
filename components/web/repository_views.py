"""Pages of chart repositories, for administrators. What each template gets:

components/repositories.html
    repositories    [Repository]
    own             [(url, [Component])]: the catalog's, which need no entry here

components/repository.html      posts to its own address with `intent=test` (only look) or `intent=save`
    repository      None for a new one
    form            RepositoryForm
    verdict         chart_repositories.RepositoryCheck, after a test
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
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from common.errors import Refusal, Stale
from common.requests import UserRequest
from components.catalog import catalog
from components.catalog.entry import Component
from components.charts import repositories as chart_repositories
from components.models import Repository


class RepositoryForm(forms.Form):
    name = forms.CharField(max_length=63, help_text="Small letters, digits and '-'.")
    url = forms.CharField(max_length=500, label="Address", help_text="https://… with an index.yaml, or oci://…")
    stands_for = forms.CharField(
        required=False,
        max_length=500,
        label="Mirror of",
        help_text="The repository of the catalog that it replaces. Empty: it is that repository itself.",
        widget=forms.TextInput(attrs={"list": "known"}),
    )
    username = forms.CharField(required=False, max_length=200, label="User name")
    password = forms.CharField(
        required=False,
        max_length=chart_repositories.LONGEST_PASSWORD,
        strip=False,
        widget=forms.PasswordInput(render_value=True, attrs={"autocomplete": "new-password"}),
    )
    forget_password = forms.BooleanField(required=False, label="Forget the stored password")
    ca = forms.CharField(
        required=False,
        max_length=131_072,
        label="Certificate authority",
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
        help_text="PEM. Empty: an authority that this machine trusts.",
    )
    hosts = forms.CharField(
        required=False,
        max_length=6000,
        label="Hosts that it may redirect to",
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text="One a line: files.example or files.example:8443. The password goes to none of them, but for tokens.",
    )
    is_enabled = forms.BooleanField(
        required=False,
        initial=True,
        label="In use",
        help_text="Switched off, it is never asked, and neither is the repository that it replaces.",
    )
    version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, repository: Repository | None = None, **how: Any) -> None:
        super().__init__(*args, **how)
        if repository is None or not repository.password:
            del self.fields["forget_password"]
        else:
            self.fields["password"].help_text = "One is stored. Empty: it stays."

    def given(self) -> dict[str, Any]:
        """Return the fields that the service takes; `password` None is the stored one."""
        data = self.cleaned_data
        password = "" if data.get("forget_password") else data["password"] or None
        return {name: data[name] for name in chart_repositories.FIELDS} | {
            "hosts": data["hosts"].split(),
            "password": password,
        }


@require_GET
@login_required
def repositories(request: UserRequest) -> HttpResponse:
    chart_repositories.may_change(request.user)
    rows = list(Repository.objects.defer("password"))
    taken = {row.stands_for or row.url for row in rows}
    own: dict[str, list[Component]] = {}
    for component in catalog.all():
        url = component.chart.url.rstrip("/")
        if url not in taken:
            own.setdefault(url, []).append(component)
    context = {"repositories": rows, "own": sorted(own.items())}
    return render(request, "components/repositories.html", context)


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
@login_required
def repository_new(request: UserRequest) -> HttpResponse:
    chart_repositories.may_change(request.user)
    if request.method == "GET":
        initial = {"stands_for": request.GET.get("stands_for", "")[:500]}
        return _page(request, None, RepositoryForm(initial=initial))
    return _sent(request, None, RepositoryForm(request.POST))


@never_cache
@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
@login_required
def repository(request: UserRequest, pk: UUID) -> HttpResponse:
    chart_repositories.may_change(request.user)
    row = get_object_or_404(Repository, pk=pk)
    if request.method == "GET":
        initial = {name: getattr(row, name) for name in chart_repositories.FIELDS}
        initial |= {"hosts": "\n".join(row.hosts), "version": row.version}
        return _page(request, row, RepositoryForm(initial=initial, repository=row))
    return _sent(request, row, RepositoryForm(request.POST, repository=row))


def _sent(request: UserRequest, row: Repository | None, form: RepositoryForm) -> HttpResponse:
    if not form.is_valid():
        return _page(request, row, form, status=422)
    given = form.given()
    try:
        if request.POST.get("intent") == "test":
            tried = chart_repositories.filled(Repository.objects.get(pk=row.pk) if row else Repository(), **given)
            return _page(request, row, form, chart_repositories.probe(tried, by=request.user))
        if row is None:
            saved = chart_repositories.create(by=request.user, **given | {"password": given["password"] or ""})
        else:
            version = form.cleaned_data["version"] or 0
            saved = chart_repositories.update(row, by=request.user, version=version, **given)
    except Refusal as refusal:
        _explain(form, refusal)
        if isinstance(refusal, Stale) and row is not None:
            row.refresh_from_db()
            form.data = {**dict(form.data.items()), "version": str(row.version)}
        return _page(request, row, form, status=refusal.status)
    messages.success(request, f"The repository {saved} is saved{'' if saved.is_enabled else '; it is not in use'}.")
    return redirect("components:repositories")


@require_POST
@login_required
def repository_delete(request: UserRequest, pk: UUID) -> HttpResponse:
    chart_repositories.may_change(request.user)
    row = get_object_or_404(Repository, pk=pk)
    version = request.POST.get("version", "")
    chart_repositories.delete(row, by=request.user, version=int(version) if version.isdecimal() else 0)
    messages.success(request, f"The repository {row} is deleted.")
    return redirect("components:repositories")


def _explain(form: RepositoryForm, refusal: Refusal) -> None:
    for name, reasons in refusal.fields.items():
        for reason in reasons:
            form.add_error(name if name in form.fields else None, reason)
    if not refusal.fields:
        form.add_error(None, f"{refusal} Your input is kept; saving again replaces theirs.")


def _page(
    request: UserRequest,
    row: Repository | None,
    form: RepositoryForm,
    verdict: chart_repositories.RepositoryCheck | None = None,
    *,
    status: int = 200,
) -> HttpResponse:
    known = sorted({component.chart.url.rstrip("/") for component in catalog.all()})
    context = {"repository": row, "form": form, "verdict": verdict, "known": known}
    return render(request, "components/repository.html", context, status=status)
