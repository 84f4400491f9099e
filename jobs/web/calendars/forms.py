"""Form of calendar rules, its fields in the words of RFC 5545."""

from __future__ import annotations

from typing import Any

from django import forms

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster, Pool
from common.errors import Refusal
from jobs.calendars import rule_text, rulebook
from jobs.models import CalendarRule
from jobs.web.choices import offer

REPEATS = {
    "": "Once",
    "FREQ=DAILY": "Every day",
    "FREQ=WEEKLY": "Every week, on this weekday",
    "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR": "Monday to Friday",
    "custom": "By an RRULE",
}
CUSTOM = "custom"
KINDS = [("window", "Window: steps start inside it"), ("freeze", "Freeze: nothing starts")]
ENVIRONMENTS = [("", "Every environment"), *Cluster.Environment.choices]


class _RefusingForm(forms.Form):
    def refuse(self, refusal: Refusal) -> None:
        for name, texts in (refusal.fields or {"": [str(refusal)]}).items():
            self.add_error(name if name in self.fields else None, texts)


class CalendarRuleForm(_RefusingForm):
    """One calendar rule. What is wrong with it as a whole is the rulebook's to say."""

    name = forms.CharField(max_length=80, help_text="Rollouts that wait name it.")
    kind = forms.ChoiceField(choices=KINDS)
    environment = forms.ChoiceField(choices=ENVIRONMENTS, required=False)
    cluster = forms.ModelChoiceField(Cluster.objects.none(), required=False, empty_label="Every cluster")
    pool = forms.ModelChoiceField(Pool.objects.none(), required=False, empty_label="Every pool")
    starts = forms.CharField(
        max_length=16, label="First start", help_text="Local time.",
        widget=forms.TextInput(attrs={"type": "datetime-local"}),
    )  # fmt: skip
    zone = forms.CharField(max_length=64, label="Time zone", initial="UTC", help_text="IANA, such as Europe/Berlin.")
    minutes = forms.IntegerField(
        min_value=rule_text.LEAST_MINUTES, max_value=rule_text.MOST_MINUTES, label="Length (minutes)", initial=120,
        help_text="Elapsed time, also when clocks change.",
    )  # fmt: skip
    repeats = forms.ChoiceField(choices=list(REPEATS.items()), required=False, label="Repeats")
    rule = forms.CharField(
        max_length=rule_text.RULE_CHARACTERS, required=False, label="RRULE",
        help_text="With “By an RRULE”: FREQ=MONTHLY;BYDAY=2TU is each second Tuesday.",
    )  # fmt: skip
    excluded = forms.CharField(
        max_length=rule_text.MOST_EXCLUDED * 18, required=False, label="Left out",
        help_text="Local starts, separated by blanks: 2026-12-25T22:00.", widget=forms.Textarea(attrs={"rows": 2}),
    )  # fmt: skip
    added = forms.CharField(
        max_length=rule_text.MOST_EXCLUDED * 18, required=False, label="Additional starts",
        help_text="Besides those of the rule, separated by blanks.", widget=forms.Textarea(attrs={"rows": 2}),
    )  # fmt: skip
    whole_days = forms.BooleanField(
        required=False, label="Whole days", help_text="From 00:00; a day counts as the zone has it, 23 to 25 hours."
    )
    version = forms.IntegerField(required=False, min_value=0, max_value=2**31 - 1, widget=forms.HiddenInput)

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offer(self, "cluster", restrict(Cluster.objects.all(), user, prefix=""))
        offer(self, "pool", restrict(Pool.objects.select_related("cluster"), user))

    @classmethod
    def initial_of(cls, row: CalendarRule) -> dict[str, Any]:
        out = {name: getattr(row, name) for name in rulebook.FIELDS}
        repeats, rule = (row.rule, "") if row.rule in REPEATS else (CUSTOM, row.rule)
        lists = {"excluded": " ".join(row.excluded), "added": " ".join(row.added)}
        return out | lists | {"repeats": repeats, "rule": rule, "version": row.version}

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        repeats, rule = cleaned.get("repeats") or "", cleaned.get("rule") or ""
        if repeats == CUSTOM and not rule:
            self.add_error("rule", "Give the RRULE, or choose another repetition.")
        elif repeats != CUSTOM and rule and rule != repeats:
            self.add_error("rule", "Choose “By an RRULE” to use it, or empty it.")
        return cleaned

    def wishes(self) -> dict[str, Any]:
        out = {name: self.cleaned_data[name] for name in rulebook.FIELDS}
        repeats = self.cleaned_data["repeats"]
        rule = self.cleaned_data["rule"] if repeats == CUSTOM else repeats
        lists = {name: self.cleaned_data[name].split() for name in ("excluded", "added")}
        return out | lists | {"rule": rule}


class CalendarFileForm(_RefusingForm):
    """An iCalendar file, and what its events apply to."""

    file = forms.FileField(label="Calendar file", help_text="iCalendar (.ics), at most 512 KiB and 200 events.")
    kind = forms.ChoiceField(choices=KINDS, help_text="An event that Setpoint exported keeps its own.")
    environment = forms.ChoiceField(choices=ENVIRONMENTS, required=False)
    cluster = forms.ModelChoiceField(Cluster.objects.none(), required=False, empty_label="Every cluster")
    pool = forms.ModelChoiceField(Pool.objects.none(), required=False, empty_label="Every pool")
    zone = forms.CharField(
        max_length=64, required=False, label="Time zone",
        help_text="Of dates and times that name none. Empty: the file’s own.",
    )  # fmt: skip
    skip_refused = forms.BooleanField(
        required=False, label="Skip refused events", help_text="Else one refused event stops the whole import."
    )

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.auto_id = "ics_%s"  # beside the form of one rule
        offer(self, "cluster", restrict(Cluster.objects.all(), user, prefix=""))
        offer(self, "pool", restrict(Pool.objects.select_related("cluster"), user))
