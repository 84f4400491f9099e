"""Pages of channels and of what was sent, for administrators. Contexts:

notices/channels.html       channels [Channel with waiting, given_up], quiet {channel: end of its quiet hours}, mail_off
notices/channel.html        posts to its own address with `intent=test` (only try) or `intent=save`
    channel         None for a new one
    form            ChannelForm
    tried           None, or what the test said: empty when it arrived
notices/deliveries.html     listing (of Delivery), statuses, channels
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from clusters.models import Cluster
from common import listing
from common.clock import now
from common.errors import Refusal, Stale
from common.requests import UserRequest, posted_version
from notices.channels import mails, quiet_hours, services
from notices.models import SEVERITIES, Channel, Delivery
from notices.reports import selectors


def _clock() -> forms.TimeInput:
    return forms.TimeInput(format="%H:%M", attrs={"type": "time"})


class ChannelForm(forms.Form):
    name = forms.CharField(max_length=80)
    kind = forms.ChoiceField(choices=Channel.Kind.choices, widget=forms.RadioSelect, label="Sends by")
    is_enabled = forms.BooleanField(
        required=False, initial=True, label="In use", help_text="Off: nothing is sent or queued."
    )
    url = forms.CharField(
        required=False,
        max_length=services.LONGEST_URL,
        label="Address of the webhook",
        help_text="https://… of the receiver; of Slack an incoming webhook's, of Teams a workflow's that waits for "
        "webhook requests. PagerDuty: empty for its own, else that of your service region.",
    )
    secret = forms.CharField(
        required=False,
        max_length=services.LONGEST_SECRET,
        strip=False,
        label="Secret",
        widget=forms.PasswordInput(render_value=True, attrs={"autocomplete": "new-password"}),
        help_text="Of a webhook at least 16 characters, or whsec_ and base64: signs each delivery, as Standard "
        "Webhooks has it. Of PagerDuty the integration key.",
    )
    ca = forms.CharField(
        required=False,
        max_length=131_072,
        label="Certificate authority",
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text="PEM. Empty: an authority that this machine trusts.",
    )
    addresses = forms.CharField(
        required=False,
        max_length=6000,
        label="Mail addresses",
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false"}),
        help_text="One a line.",
    )
    what = forms.MultipleChoiceField(
        choices=Channel.What.choices, widget=forms.CheckboxSelectMultiple, label="Tells of", initial=["alerts"]
    )
    least_severity = forms.ChoiceField(choices=SEVERITIES[::-1], label="Alerts from", initial="warning")
    environment = forms.ChoiceField(
        required=False, choices=[("", "every environment"), *Cluster.Environment.choices], label="Only clusters of"
    )
    cluster = forms.ModelChoiceField(
        Cluster.objects.none(), required=False, empty_label="every cluster", label="Only the cluster"
    )
    namespaces = forms.CharField(
        required=False,
        max_length=14_000,
        label="Only namespaces",
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false"}),
        help_text="One a line. Then it hears of their pods alone, not of nodes or GPUs. Empty: everything.",
    )
    digest_hour = forms.IntegerField(
        min_value=0, max_value=23, initial=7, label="Hour of the digest", help_text="UTC, 0 to 23."
    )
    quiet_days = forms.MultipleChoiceField(
        choices=quiet_hours.DAY_NAMES, required=False, widget=forms.CheckboxSelectMultiple, label="Quiet hours begin on"
    )
    quiet_from = forms.TimeField(required=False, label="From", widget=_clock())
    quiet_until = forms.TimeField(
        required=False, label="Until", widget=_clock(), help_text="Of the next day where it is no later."
    )
    quiet_zone = forms.CharField(
        required=False, max_length=64, initial="UTC", label="Time zone", help_text="Such as Europe/Berlin."
    )
    version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, channel: Channel | None = None, **how: Any) -> None:
        super().__init__(*args, **how)
        field = self.fields["cluster"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = Cluster.objects.order_by("name")
        if channel is not None and channel.secret_key:
            self.fields["secret"].help_text = "One is stored. Empty: it stays."

    def given(self) -> dict[str, Any]:
        """Return the service's arguments; `secret` None keeps the stored one."""
        data = self.cleaned_data
        return {name: data[name] for name in services.FIELDS} | {
            "addresses": data["addresses"].split(),
            "namespaces": data["namespaces"].split(),
            "quiet_zone": data["quiet_zone"] or "UTC",
            "secret": data["secret"] or None,
        }


@require_GET
@login_required
def channels(request: UserRequest) -> HttpResponse:
    services.may_change(request.user)
    waiting = Count("deliveries", filter=Q(deliveries__status=Delivery.Status.WAITING))
    given_up = Count("deliveries", filter=Q(deliveries__status=Delivery.Status.GIVEN_UP))
    rows = Channel.objects.defer("secret").select_related("cluster").annotate(waiting=waiting, given_up=given_up)
    listed, at = list(rows.order_by("name")), now()
    context = {
        "channels": listed,
        "quiet": {row.pk: end for row in listed if (end := quiet_hours.ends(row, at))},
        "mail_off": mails.reason_not_to(),
        "what": dict(_SHORT),
    }
    return render(request, "notices/channels.html", context)


_SHORT = (
    ("alerts", "alerts"),
    ("digest", "daily digest"),
    ("approvals", "approvals"),
    ("rollouts", "rollouts with problems"),
    ("done", "rollouts done"),
)


@never_cache
@sensitive_post_parameters("secret")
@require_http_methods(["GET", "POST"])
@login_required
def channel_new(request: UserRequest) -> HttpResponse:
    services.may_change(request.user)
    if request.method == "GET":
        return _page(request, None, ChannelForm(initial={"kind": Channel.Kind.WEBHOOK}))
    return _sent(request, None, ChannelForm(request.POST))


@never_cache
@sensitive_post_parameters("secret")
@require_http_methods(["GET", "POST"])
@login_required
def channel(request: UserRequest, pk: UUID) -> HttpResponse:
    services.may_change(request.user)
    row = get_object_or_404(Channel, pk=pk)
    if request.method == "GET":
        initial = {name: getattr(row, name) for name in services.FIELDS} | {"version": row.version}
        initial |= {"namespaces": "\n".join(row.namespaces), "addresses": "\n".join(row.addresses)}
        return _page(request, row, ChannelForm(initial=initial, channel=row))
    return _sent(request, row, ChannelForm(request.POST, channel=row))


def _sent(request: UserRequest, row: Channel | None, form: ChannelForm) -> HttpResponse:
    if not form.is_valid():
        return _page(request, row, form, status=422)
    given = form.given()
    try:
        if request.POST.get("intent") == "test":
            tried = services.filled(Channel.objects.get(pk=row.pk) if row else Channel(), **given)
            return _page(request, row, form, tried=services.probe(tried, by=request.user))
        if row is None:
            saved = services.create(by=request.user, **given)
        else:
            saved = services.update(row, by=request.user, version=form.cleaned_data["version"] or 0, **given)
    except Refusal as refusal:
        for name, reasons in refusal.fields.items():
            form.add_error(name if name in form.fields else None, " ".join(reasons))
        if not refusal.fields:
            form.add_error(None, f"{refusal} Your input is kept; saving again replaces theirs.")
        if isinstance(refusal, Stale) and row is not None:
            row.refresh_from_db()
            form.data = request.POST.copy()
            form.data["version"] = str(row.version)
        return _page(request, row, form, status=refusal.status)
    messages.success(request, f"The channel {saved} is saved{'' if saved.is_enabled else '; it is not in use'}.")
    return redirect("notices:channels")


def _page(
    request: UserRequest, row: Channel | None, form: ChannelForm, *, tried: str | None = None, status: int = 200
) -> HttpResponse:
    lately = selectors.deliveries().filter(channel=row).order_by("-created_at", "pk")[:10] if row else []
    context = {
        "channel": row,
        "form": form,
        "is_tried": tried is not None,
        "tried": tried,
        "mail_off": mails.reason_not_to(),
        "lately": list(lately),
    }
    return render(request, "notices/channel.html", context, status=status)


@require_POST
@login_required
def channel_delete(request: UserRequest, pk: UUID) -> HttpResponse:
    services.may_change(request.user)
    row = get_object_or_404(Channel, pk=pk)
    services.delete(row, by=request.user, version=posted_version(request))
    messages.success(request, f"The channel {row} is deleted.")
    return redirect("notices:channels")


@require_GET
@login_required
def deliveries(request: UserRequest) -> HttpResponse:
    services.may_change(request.user)
    delivery_list = listing.read(
        request, selectors.deliveries(), selectors.DeliveryFilter, selectors.DELIVERY_ORDERS, chips="status"
    )
    context = {
        "listing": delivery_list,
        "statuses": Delivery.Status.choices,
        "channels": list(Channel.objects.order_by("name").values_list("pk", "name")),
    }
    return render(request, "notices/deliveries.html", context)


@require_POST
@login_required
def delivery_retry(request: UserRequest, pk: UUID) -> HttpResponse:
    services.may_change(request.user)
    row = get_object_or_404(selectors.deliveries(), pk=pk)
    services.retry(row, by=request.user)
    messages.success(request, "It is sent once more, within seconds.")
    return redirect("notices:deliveries")
