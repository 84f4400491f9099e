"""Forms of the pages. Rules are the services'; a form only says what is missing or too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from django import forms
from django.http import QueryDict

from common.errors import Invalid
from profiles.editor.component_rows import ComponentFields
from profiles.editor.form_data import MarkLine, SettingLine, Sheet, TaintLine, one_line
from profiles.imports import formats
from profiles.services import editing


class SourceField(forms.CharField):
    """YAML, as typed: browsers send CRLF, which would make every line differ from the same text sent over REST."""

    widget = forms.Textarea

    def __init__(self, **options: object) -> None:
        super().__init__(max_length=editing.MAX_SOURCE, strip=False, label="Profile", **options)  # type: ignore[arg-type]
        self.widget.attrs |= {"rows": 24, "spellcheck": "false", "autocapitalize": "off", "class": "mono"}

    def to_python(self, value: object) -> str:
        return str(super().to_python(value)).replace("\r\n", "\n")


class NewProfileForm(forms.Form):
    name = forms.CharField(max_length=63, help_text="Lower-case letters, digits and '-'. It cannot be changed later.")
    source = SourceField(required=False)


class DraftForm(forms.Form):
    source = SourceField(required=False)
    version = forms.IntegerField(widget=forms.HiddenInput, min_value=1, max_value=2**31 - 1)


class PublishForm(forms.Form):
    message = forms.CharField(
        max_length=editing.MAX_MESSAGE,
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


class OwnerForm(VersionForm):
    owner = forms.ChoiceField(
        required=False, help_text="Of the operators, only those with a role in this team may change the profile."
    )

    def __init__(self, *args: Any, owners: Sequence[tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        cast("forms.ChoiceField", self.fields["owner"]).choices = owners


class CompareForm(forms.Form):
    before = forms.CharField(max_length=100, label="From", widget=forms.TextInput(attrs={"list": "revisions"}))
    after = forms.CharField(max_length=100, label="To", widget=forms.TextInput(attrs={"list": "revisions"}))


class ImportForm(forms.Form):
    name = forms.CharField(
        max_length=63, help_text="A new one, or one whose draft the text replaces. Nothing is published by this."
    )
    file = forms.FileField(
        required=False,
        allow_empty_file=True,
        help_text="Its text goes into the box below, where you can read and change it. A text in the box comes first.",
        widget=forms.FileInput(attrs={"accept": ".yaml,.yml,.conf,text/plain", "data-into": "#id_source"}),
    )
    format = forms.ChoiceField(
        required=False,
        initial=formats.AUTOMATIC,
        choices=[
            (formats.AUTOMATIC, "Recognize it"),
            *((format.key, format.title) for format in formats.FORMATS.values()),
        ],
        help_text="Of another tool's file a draft is made, and each line that cannot be taken is named.",
    )
    source = SourceField(required=False)
    token = forms.CharField(max_length=64, required=False, widget=forms.HiddenInput)

    def clean_format(self) -> str:
        return self.cleaned_data["format"] or formats.AUTOMATIC

    def clean(self) -> dict[str, Any]:
        """Take the file's text: with JavaScript it is in the box already; without, it is read here, and shown there."""
        file = self.cleaned_data.get("file")
        if file and not self.data.get("source", "").strip():
            try:
                text = file.read(editing.MAX_SOURCE + 1).decode("utf-8").replace("\r\n", "\n")
            except UnicodeDecodeError:
                self.add_error("file", "This is not text in UTF-8: choose the file itself.")
            else:
                self.data = {**dict(self.data.items()), "source": text}
                self._take(text)
        return self.cleaned_data

    def _take(self, text: str) -> None:
        try:
            self.cleaned_data["source"] = self.fields["source"].clean(text)
        except forms.ValidationError as error:
            self.add_error("file", error)


MAX_ROWS = 600
"""More rows than a node takes settings: beyond it a form is no person's."""


def sheet_of(post: QueryDict) -> Sheet:
    """Return the fields of the form editor, as typed; rows without a word are left out. Raises Invalid."""
    settings = _rows(post, "key", "operator", "value", "why")
    labels = _rows(post, "label", "label_value")
    annotations = _rows(post, "annotation", "annotation_value")
    taints = _rows(post, "taint", "taint_value", "taint_effect")
    return Sheet(
        extends=post.get("extends", "").strip(),
        description=one_line(post.get("description", "")),
        settings=tuple(SettingLine(key, operator, value, one_line(why)) for key, operator, value, why in settings),
        labels=tuple(MarkLine(key.strip(), value) for key, value in labels if key.strip() or value),
        annotations=tuple(MarkLine(key.strip(), value) for key, value in annotations if key.strip() or value),
        taints=tuple(TaintLine(key.strip(), value, effect) for key, value, effect in taints if key.strip() or value),
        remove=tuple(post.getlist("remove")),
    )


def _rows(post: QueryDict, *names: str) -> list[Sequence[str]]:
    """Fields of one name each, side by side. Browsers send CRLF and every field of every row."""
    columns = [[text.replace("\r\n", "\n") for text in post.getlist(name)] for name in names]
    counts = {len(column) for column in columns}
    if len(counts) > 1 or max(counts) > MAX_ROWS:
        raise Invalid("The form is incomplete.", fields={names[0]: ["Every row needs all of its fields."]})
    return list(zip(*columns, strict=True))


def components_of(post: QueryDict) -> tuple[ComponentFields, ...] | None:
    """Return the form's fields of components; None where it has none. Raises Invalid."""
    if not post.get("with_components"):
        return None
    names = ("component", "component_version", "component_presets", "component_values", "component_why")
    rows = _rows(post, *names, "component_remove")
    for name, *_, remove in rows:
        if remove not in ("", "true"):
            message = f"remove must be true or empty, not {remove[:20]!r}."
            raise Invalid(f"{name[:60]}: {message}", fields={f"components.{name[:60]}.remove": [message]})
    return tuple(
        ComponentFields(name.strip(), version.strip(), one_line(presets), values, one_line(why), is_gone=bool(remove))
        for name, version, presets, values, why, remove in rows
    )
