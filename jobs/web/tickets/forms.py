"""Forms of the page of change records."""

from __future__ import annotations

from django import forms

from clusters.models import Cluster
from jobs.approvals.tickets import patterns


class ChangeRecordRuleForm(forms.Form):
    """The rule of one environment. What is wrong with the pattern is the rulebook's to say."""

    version = forms.IntegerField(required=False, widget=forms.HiddenInput, help_text="Of the rule that it changes.")
    shown = forms.CharField(required=False, widget=forms.HiddenInput, help_text="The environment of that rule.")
    environment = forms.ChoiceField(choices=Cluster.Environment.choices)
    pattern = forms.CharField(
        max_length=patterns.PATTERN_CHARACTERS, label="Form of the reference",
        help_text=r"Of the whole reference: CHG\d{7}. " + patterns.SYNTAX,
    )  # fmt: skip
    is_required = forms.BooleanField(required=False, initial=True, label="A plan starts only with a reference")
    must_release = forms.BooleanField(
        required=False, label="The ticket system must release it", help_text="Until then the plan does not start."
    )


class TicketConnectionForm(forms.Form):
    name = forms.CharField(max_length=80, help_text="The audit record names it.")
    secret = forms.CharField(
        max_length=200,
        help_text="whsec_ and base64 of 24 to 64 random bytes. It is never shown again.",
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
    )
