"""Forms of prices and teams: they carry what is typed; `gpus.showback` judges it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django import forms

from accounts.models import User
from clusters.reports.selectors import clusters_visible_to
from gpus.models import GpuPrice
from gpus.showback import pricing

_DAY = {"type": "date"}


class PriceForm(forms.Form):
    kind = forms.ChoiceField(choices=GpuPrice.Kind.choices, label="Price of", initial="gpu")
    model = forms.CharField(
        required=False,
        max_length=120,
        label="GPU model",
        help_text="As nodes are labeled, such as NVIDIA-H100-80GB-HBM3. Empty for energy.",
    )
    cluster = forms.ChoiceField(required=False, help_text="A price of one cluster goes before that of every cluster.")
    amount = forms.DecimalField(label="Amount", max_digits=14, decimal_places=pricing.PLACES, min_value=0)
    pue = forms.DecimalField(
        required=False,
        max_digits=5,
        decimal_places=3,
        label="PUE",
        help_text="Energy alone: kWh of the site for each kWh of its GPUs. Empty: 1.",
    )
    valid_from = forms.DateField(
        label="From", widget=forms.DateInput(attrs=_DAY, format="%Y-%m-%d"), help_text="Its first day, in UTC."
    )

    def __init__(self, *args: Any, user: User, **how: Any) -> None:
        super().__init__(*args, **how)
        self._clusters = {str(row.pk): row for row in clusters_visible_to(user).order_by("name")}
        choices = [("", "Every cluster"), *((pk, row.name) for pk, row in self._clusters.items())]
        self.fields["cluster"].choices = choices  # type: ignore[attr-defined]

    def given(self) -> dict[str, Any]:
        """Return the service's arguments."""
        data = self.cleaned_data
        pue = Decimal(1) if data["pue"] is None else data["pue"]
        return {**data, "cluster": self._clusters.get(data["cluster"]), "pue": pue}


class TeamForm(forms.Form):
    name = forms.CharField(max_length=63)
    budget = forms.DecimalField(
        required=False,
        max_digits=14,
        decimal_places=2,
        min_value=0,
        label="Budget a month",
        help_text="For its GPUs and their energy. Empty: none.",
    )


class RulesForm(forms.Form):
    rules = forms.CharField(
        required=False,
        max_length=200_000,
        label="Rules, first match first",
        widget=forms.Textarea(attrs={"rows": 12, "spellcheck": "false", "autocomplete": "off"}),
        help_text="One a line: namespace vision-* = Perception, or owner Job/nightly-* = Platform.",
    )
    version = forms.IntegerField(widget=forms.HiddenInput)
