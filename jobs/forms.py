"""What people type into pages about plans, rollouts and freezes; the rules themselves are the services'."""

from __future__ import annotations

import dataclasses
from typing import Any

from django import forms

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster, Pool
from jobs.strategy import ON_FAILURE, ORDERS, Strategy
from profiles.models import Revision

DEFAULT = Strategy()


def _instant() -> forms.DateTimeInput:
    """The browser's own picker; it sends `2026-11-21T22:00`, which is taken as UTC."""
    return forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")


class PlanForm(forms.Form):
    pool = forms.ModelChoiceField(
        Pool.objects.none(), empty_label="Choose a pool", help_text="Every node that its selector matches now."
    )
    revision = forms.ModelChoiceField(Revision.objects.none(), help_text="What the nodes shall run.")
    message = forms.CharField(max_length=500, required=False, help_text="Why, for the person who reviews it.")
    canary = forms.IntegerField(
        min_value=0, max_value=1000, initial=DEFAULT.canary, help_text="Nodes in the first batch."
    )
    batch = forms.CharField(max_length=5, initial=DEFAULT.batch, help_text="Nodes in each later batch: 10, or 25%.")
    budget = forms.IntegerField(
        min_value=0, max_value=1000, initial=0, help_text="Nodes out of service at once; 0: the cluster's own budget."
    )
    max_in_flight = forms.IntegerField(min_value=1, max_value=1000, initial=DEFAULT.max_in_flight)
    max_failures = forms.IntegerField(
        min_value=0, max_value=10_000, initial=0, help_text="More than this stop new starts."
    )
    soak_seconds = forms.IntegerField(min_value=0, max_value=604_800, initial=0, help_text="Pause after each batch.")
    drain_timeout_seconds = forms.IntegerField(min_value=10, max_value=86_400, initial=DEFAULT.drain_timeout_seconds)
    step_deadline_seconds = forms.IntegerField(min_value=10, max_value=86_400, initial=DEFAULT.step_deadline_seconds)
    reboot_deadline_seconds = forms.IntegerField(
        min_value=60, max_value=86_400, initial=DEFAULT.reboot_deadline_seconds
    )
    order = forms.ChoiceField(choices=list(ORDERS.items()))
    on_failure = forms.ChoiceField(choices=list(ON_FAILURE.items()))
    delete_empty_dir_data = forms.BooleanField(required=False, label="Evict pods although their emptyDir data is lost")
    delete_unmanaged_pods = forms.BooleanField(required=False, label="Evict pods that nothing will recreate")
    include_unavailable = forms.BooleanField(required=False, label="Also nodes that are not ready or cordoned")
    enforce = forms.BooleanField(required=False, label="Repair drift afterwards")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        pools = restrict(Pool.objects.select_related("cluster"), user)
        self.fields["pool"].queryset = pools  # type: ignore[attr-defined]
        self.fields["revision"].queryset = Revision.objects.select_related("profile").order_by(  # type: ignore[attr-defined]
            "profile__name", "-number"
        )

    def strategy(self) -> dict[str, Any]:
        names = {f.name for f in dataclasses.fields(Strategy)}
        return {name: value for name, value in self.cleaned_data.items() if name in names}


class StartForm(forms.Form):
    at = forms.DateTimeField(required=False, widget=_instant(), help_text="UTC; empty: now.")


class FreezeForm(forms.Form):
    cluster = forms.ModelChoiceField(Cluster.objects.none(), required=False, empty_label="All clusters")
    reason = forms.CharField(max_length=500)
    until = forms.DateTimeField(required=False, widget=_instant(), help_text="UTC; empty: until it is lifted.")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["cluster"].queryset = restrict(Cluster.objects.all(), user, prefix="")  # type: ignore[attr-defined]
