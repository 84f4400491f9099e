"""Forms of pages about plans, rollouts and freezes; the rules themselves are the services'."""

from __future__ import annotations

import dataclasses
from typing import Any

from django import forms

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster, Pool
from common.errors import Refusal
from jobs.approvals import rulebook
from jobs.diffs.changes import Disruption
from jobs.forecast.strategy import ON_FAILURE, ORDERS, PRIMARY_MEASURES, Strategy
from jobs.models import ApprovalRule
from jobs.web.choices import offer
from profiles.models import Revision

DEFAULT = Strategy()
TIMES = ("soak_seconds", "drain_timeout_seconds", "step_deadline_seconds", "reboot_deadline_seconds",
         "component_deadline_seconds", "max_in_flight")  # fmt: skip
"""Fields that stand under "Time and speed"."""
MEASURING = ("control", "measure_hours", "settle_minutes", "primary_measure", "seed")
"""Fields of the randomized order."""


def _instant() -> forms.DateTimeInput:
    """The browser's own picker; it sends `2026-11-21T22:00`, which is taken as UTC."""
    return forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M")


class PlanForm(forms.Form):
    pool = forms.ModelChoiceField(
        Pool.objects.none(), empty_label="Choose a pool", help_text="Every node that its selector matches now."
    )
    revision = forms.ModelChoiceField(
        Revision.objects.none(), empty_label="Choose a revision", help_text="Revision to apply."
    )
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
        min_value=0, max_value=10_000, initial=0, help_text="Pause the rollout after this many failures."
    )
    soak_seconds = forms.IntegerField(min_value=0, max_value=604_800, initial=0, help_text="Pause after each batch.")
    drain_timeout_seconds = forms.IntegerField(min_value=10, max_value=86_400, initial=DEFAULT.drain_timeout_seconds)
    step_deadline_seconds = forms.IntegerField(min_value=10, max_value=86_400, initial=DEFAULT.step_deadline_seconds)
    reboot_deadline_seconds = forms.IntegerField(
        min_value=60, max_value=86_400, initial=DEFAULT.reboot_deadline_seconds
    )
    component_deadline_seconds = forms.IntegerField(
        min_value=0,
        max_value=86_400,
        initial=DEFAULT.component_deadline_seconds,
        required=False,
        help_text="For helm, and then for a component to get ready; 0: the installation's own limits.",
    )
    order = forms.ChoiceField(
        choices=list(ORDERS.items()),
        help_text="Randomized, with a control group: measures the effect on GPUs instead of estimating it.",
    )
    domain = forms.CharField(
        max_length=317, required=False, label="Failure domain",
        help_text="Label such as topology.kubernetes.io/zone: one zone, or rack, is finished before the next.",
    )  # fmt: skip
    control = forms.CharField(
        max_length=5, initial=DEFAULT.control, required=False, label="Control group size",
        help_text="Held back of each kind of node: 10, or 25%.",
    )  # fmt: skip
    measure_hours = forms.IntegerField(
        min_value=1, max_value=24, initial=DEFAULT.measure_hours, required=False, label="Hours measured",
        help_text="Before and after the change; the control group is held back as long.",
    )  # fmt: skip
    settle_minutes = forms.IntegerField(
        min_value=0, max_value=240, initial=DEFAULT.settle_minutes, required=False, label="Minutes to settle",
        help_text="After the last changed node, before measuring.",
    )  # fmt: skip
    primary_measure = forms.ChoiceField(
        choices=list(PRIMARY_MEASURES.items()), required=False, label="Primary measure",
        help_text="The others are judged more strictly. Those of hosts need a Prometheus with the node exporter.",
    )  # fmt: skip
    seed = forms.IntegerField(
        min_value=0, max_value=2**31 - 1, initial=0, required=False,
        help_text="Random seed; 0: drawn when the plan is made. The plan warns of one that is given.",
    )  # fmt: skip
    gate_xids = forms.BooleanField(required=False, label="Stop on new XIDs not caused by applications")
    gate_throttled_points = forms.IntegerField(
        min_value=0, max_value=100, initial=0, required=False, label="Stop on more throttling, % of the time",
        help_text="0: no such gate.",
    )  # fmt: skip
    gate_fall_percent = forms.IntegerField(
        min_value=0, max_value=100, initial=0, required=False, label="Stop on a fall, %",
        help_text="Of OFU, else tensor activity, else busy, while held; 0: no such gate.",
    )  # fmt: skip
    gate_minutes = forms.IntegerField(
        min_value=20, max_value=240, initial=DEFAULT.gate_minutes, required=False, label="Minutes watched",
        help_text="After each batch, before a gate opens.",
    )  # fmt: skip
    on_failure = forms.ChoiceField(choices=list(ON_FAILURE.items()))
    delete_empty_dir_data = forms.BooleanField(required=False, label="Evict pods although their emptyDir data is lost")
    delete_unmanaged_pods = forms.BooleanField(required=False, label="Evict unmanaged pods (not recreated)")
    include_unavailable = forms.BooleanField(required=False, label="Also nodes that are not ready or cordoned")
    include_joining = forms.BooleanField(
        required=False,
        label="Also nodes new to the cluster that join while it runs",
        help_text="Live changes only, as a last batch. A node that was there before and is relabeled into the pool, "
        "or one that needs more than a live change, stays pending: a plan is drafted for it.",
    )
    enforce = forms.BooleanField(required=False, label="Repair drift afterwards")
    form_key = forms.CharField(max_length=64, required=False, widget=forms.HiddenInput)
    """Drawn when the form is shown: sent twice, it makes one plan."""

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offer(self, "pool", restrict(Pool.objects.select_related("cluster"), user))
        offer(self, "revision", Revision.objects.select_related("profile").order_by("profile__name", "-number"))

    @property
    def has_wrong_times(self) -> bool:
        return any(name in self.errors for name in TIMES)

    @property
    def has_wrong_measuring(self) -> bool:
        return any(name in self.errors for name in MEASURING)

    def strategy(self) -> dict[str, Any]:
        names = {f.name for f in dataclasses.fields(Strategy)}
        return {name: value for name, value in self.cleaned_data.items() if name in names and value not in (None, "")}


class RuleForm(forms.Form):
    """One approval rule. What is wrong with it as a whole is the rulebook's to say."""

    name = forms.CharField(max_length=80, help_text="Plans and records name it.")
    environment = forms.ChoiceField(
        choices=[("", "Every environment"), *Cluster.Environment.choices], required=False, label="Environment"
    )
    cluster = forms.ModelChoiceField(Cluster.objects.none(), required=False, empty_label="Every cluster")
    worst_class = forms.ChoiceField(
        choices=[("", "Any change"), *((str(c), c.replace("-", " ").capitalize()) for c in Disruption)],
        required=False,
        label="At least this disruptive",
    )
    gpu_percent = forms.IntegerField(
        min_value=1, max_value=100, required=False, label="From this share of GPUs, %",
        help_text="Of the cluster's GPUs, those on nodes that change.",
    )  # fmt: skip
    node_percent = forms.IntegerField(
        min_value=1, max_value=100, required=False, label="From this share of nodes, %",
        help_text="Of the cluster's nodes, those that change.",
    )  # fmt: skip
    gpus = forms.IntegerField(
        min_value=1, max_value=rulebook.MOST, required=False, label="From so many GPUs out of service"
    )
    gpu_jobs = forms.IntegerField(
        min_value=1, max_value=rulebook.MOST, required=False, label="From so many GPU jobs interrupted"
    )
    namespace = forms.CharField(
        max_length=63, required=False, label="GPU jobs of this namespace", help_text="Empty: of any, or none."
    )
    component = forms.CharField(max_length=63, required=False, label="This component", help_text="Empty: any, or none.")
    weakens_security = forms.BooleanField(required=False, label="Only settings that weaken security")
    approvers = forms.IntegerField(min_value=1, max_value=rulebook.MOST_APPROVERS, initial=1)
    of_count = forms.IntegerField(
        min_value=0, max_value=rulebook.MOST_APPROVERS, required=False, label="Of whom at least"
    )
    of_role = forms.ChoiceField(
        choices=[("", "Anybody"), *((str(r), f"{r.capitalize()}s") for r in rulebook.OF_ROLES)],
        required=False,
        label="Are",
    )
    of_scope = forms.CharField(
        max_length=60, required=False, label="Where",
        help_text="*, env:production or cluster:<uuid>; empty: where the plan's cluster is.",
    )  # fmt: skip
    version = forms.IntegerField(required=False, min_value=0, max_value=2**31 - 1, widget=forms.HiddenInput)

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offer(self, "cluster", restrict(Cluster.objects.all(), user, prefix=""))

    @classmethod
    def initial_of(cls, row: ApprovalRule) -> dict[str, Any]:
        return {name: getattr(row, name) for name in rulebook.FIELDS if name in cls.base_fields} | {
            "version": row.version
        }

    def wishes(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in rulebook.FIELDS if name in self.fields}

    def refuse(self, refusal: Refusal) -> None:
        for name, texts in (refusal.fields or {"": [str(refusal)]}).items():
            self.add_error(name if name in self.fields else None, texts)


class StartForm(forms.Form):
    at = forms.DateTimeField(required=False, widget=_instant(), help_text="UTC; empty: now.")


class FreezeForm(forms.Form):
    cluster = forms.ModelChoiceField(Cluster.objects.none(), required=False, empty_label="All clusters")
    reason = forms.CharField(max_length=500)
    until = forms.DateTimeField(required=False, widget=_instant(), help_text="UTC; empty: until it is lifted.")

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offer(self, "cluster", restrict(Cluster.objects.all(), user, prefix=""))
