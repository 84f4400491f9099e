"""What pages send. Rules are the services'; a form only says what is missing or too long."""

from __future__ import annotations

from django import forms

from profiles import services


class SourceField(forms.CharField):
    """YAML, as typed: browsers send CRLF, which would make every line differ from the same text sent over REST."""

    widget = forms.Textarea

    def __init__(self, **options: object) -> None:
        super().__init__(max_length=services.MAX_SOURCE, strip=False, label="Profile", **options)  # type: ignore[arg-type]
        self.widget.attrs |= {"rows": 24, "spellcheck": "false", "autocapitalize": "off", "class": "mono"}

    def to_python(self, value: object) -> str:
        return str(super().to_python(value)).replace("\r\n", "\n")


class NewProfileForm(forms.Form):
    name = forms.CharField(max_length=63, help_text="Lower-case letters, digits and '-'. It cannot be changed later.")
    description = forms.CharField(max_length=services.MAX_DESCRIPTION, required=False)
    source = SourceField(required=False)


class DraftForm(forms.Form):
    source = SourceField()
    version = forms.IntegerField(widget=forms.HiddenInput, min_value=1, max_value=2**31 - 1)


class PublishForm(forms.Form):
    message = forms.CharField(
        max_length=services.MAX_MESSAGE,
        required=False,
        label="What changed, and why",
        help_text="Kept with the revision. Approvers read it first.",
        widget=forms.Textarea(attrs={"rows": 3}),
    )
    version = forms.IntegerField(widget=forms.HiddenInput, min_value=1, max_value=2**31 - 1)

    def clean_message(self) -> str:
        return str(self.cleaned_data["message"]).replace("\r\n", "\n")


class VersionForm(forms.Form):
    version = forms.IntegerField(widget=forms.HiddenInput, min_value=1, max_value=2**31 - 1)
