"""Forms that start and schedule checks: they carry what is typed; gpus.services.checks judges it."""

from __future__ import annotations

from typing import Any

from django import forms

from accounts.models import User
from clusters.reports.selectors import clusters_visible_to
from gpus.models import CheckSchedule
from gpus.services.checks import reports, schedules, starting
from gpus.services.checks.catalog import CHECKS


class StartForm(forms.Form):
    check = forms.ChoiceField(help_text="Those that have an image.")
    cluster = forms.ChoiceField()
    nodes = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 3}),
        max_length=100_000,
        help_text="Names, separated by spaces or lines. Each is checked once it is idle.",
    )
    at_once = forms.IntegerField(
        label="At once",
        min_value=1,
        max_value=starting.MOST_AT_ONCE,
        help_text="Nodes at the same time, at most; never more than the cluster's budget.",
    )

    targets = forms.CharField(
        required=False,
        max_length=10_000,
        help_text="Of the network check, besides its own: DNS names and host:port, separated by spaces.",
    )

    def __init__(self, *args: Any, user: User, **how: Any) -> None:
        super().__init__(*args, **how)
        self._clusters = {row.name: row for row in clusters_visible_to(user).order_by("name")}
        self._offer("cluster", [(name, name) for name in self._clusters])
        self._offer("check", [(line.check.name, line.check.title) for line in reports.catalog() if line.image])

    def _offer(self, name: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices

    def given(self) -> dict[str, Any]:
        """Return the service's arguments."""
        data = self.cleaned_data
        return {
            "name": data["check"],
            "cluster": self._clusters[data["cluster"]],
            "node_names": data["nodes"].replace(",", " ").split(),
            "at_once": data["at_once"],
            "targets": data["targets"].replace(",", " ").split(),
        }


class ScheduleChangeForm(forms.Form):
    every_days = forms.IntegerField(
        label="Every, in days",
        min_value=CheckSchedule.LEAST_DAYS,
        max_value=CheckSchedule.MOST_DAYS,
        help_text="From one result of a node to its next run.",
    )
    at_once = forms.IntegerField(
        label="At once",
        min_value=1,
        max_value=CheckSchedule.MOST_AT_ONCE,
        help_text="Nodes at the same time, at most; never more than the cluster's budget.",
    )


class ScheduleForm(ScheduleChangeForm):
    check_name = forms.ChoiceField(label="Check")
    cluster = forms.ChoiceField()

    field_order = ("check_name", "cluster")

    def __init__(self, *args: Any, user: User, **how: Any) -> None:
        super().__init__(*args, **how)
        self.auto_id = "schedule_%s"  # beside the form that starts a check
        self._clusters = {row.name: row for row in schedules.clusters_of(user)}
        self._offer("cluster", [(name, name) for name in self._clusters])
        self._offer("check_name", [(check.name, check.title) for check in CHECKS.values()])

    def _offer(self, name: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices

    def given(self) -> dict[str, Any]:
        """Return the service's arguments."""
        return self.cleaned_data | {"cluster": self._clusters[self.cleaned_data["cluster"]]}
