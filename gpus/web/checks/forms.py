"""Form that starts a check: it carries what is typed; gpus.services.checks.starting judges it."""

from __future__ import annotations

from typing import Any

from django import forms

from accounts.models import User
from clusters.reports.selectors import clusters_visible_to
from gpus.services.checks import reports, starting


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
        }
