"""Forms of pages. Values are validated by the services; forms only carry them, and keep what was typed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from django import forms
from django.core.files.uploadedfile import UploadedFile

from clusters.models import Cluster
from clusters.net.credentials import BadCredentials
from clusters.services.pools import MOST_HOLD_MINUTES
from common.errors import Refusal
from common.yaml import MAX_BYTES

SECRETS = ("kubeconfig", "token")


class CredentialForm(forms.Form):
    """Either a kubeconfig, pasted or uploaded, or URL, CA and token."""

    kubeconfig = forms.CharField(
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 10, "spellcheck": "false", "autocomplete": "off"}),
        help_text="Paste it. Programs, file paths, proxies and skipped TLS checks in it are refused.",
    )
    upload = forms.FileField(required=False, label="Or upload the file")
    context = forms.CharField(
        required=False, max_length=253, help_text="Only needed when the file names several contexts."
    )
    server = forms.CharField(required=False, max_length=2048, label="Address", help_text="https://…:6443")
    ca = forms.CharField(
        required=False,
        max_length=65_536,
        label="Certificate authority",
        widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "false"}),
        help_text="PEM. Empty: an authority that this machine trusts.",
    )
    token = forms.CharField(
        required=False,
        max_length=16_384,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false", "autocomplete": "off"}),
        help_text="Of the service account setpoint-controller.",
    )

    def clean_upload(self) -> str:
        """The file's text; an unreadable one is refused by what reads it."""
        upload = self.cleaned_data.get("upload")
        if not isinstance(upload, UploadedFile):
            return ""
        if (upload.size or 0) > MAX_BYTES:
            raise forms.ValidationError(f"A kubeconfig has at most {MAX_BYTES // 1024} KiB.")
        try:
            return bytes(upload.read()).decode()
        except UnicodeDecodeError as error:
            raise forms.ValidationError("This is not a text file.") from error

    def given(self) -> dict[str, str]:
        """Return the arguments of `registry.read_credentials`."""
        data = self.cleaned_data
        return {
            "kubeconfig": data["kubeconfig"] or data.get("upload") or "",
            **{name: data[name] for name in ("context", "server", "ca", "token")},
        }

    def refuse(self, refusal: Refusal) -> None:
        """Put each reason beside its field; what has no field of its own is shown beside the credential."""
        if isinstance(refusal, BadCredentials) and refusal.choices:
            self._offer(refusal.choices)
            return
        if not refusal.fields:
            self.add_error(None, str(refusal))
        for name, messages in refusal.fields.items():
            for message in messages:
                self.add_error(name if name in self.fields else self._stand_in(), message)

    def _offer(self, contexts: Sequence[str]) -> None:
        """Choosing one of the file's contexts instead of writing its name."""
        self.fields["context"].widget = forms.Select(choices=[("", "Choose one"), *((name, name) for name in contexts)])
        self.add_error("context", "Choose one: these are the contexts of the kubeconfig.")

    def _stand_in(self) -> str:
        return "server" if self.data.get("server") and not self.data.get("kubeconfig") else "kubeconfig"


class ConnectForm(CredentialForm):
    name = forms.CharField(max_length=63, help_text="Small letters, digits and '-'.")
    environment = forms.ChoiceField(choices=Cluster.Environment.choices)
    budget = forms.IntegerField(
        initial=1, min_value=1, max_value=10_000, help_text="Maximum nodes out of service at once (all causes)."
    )
    take_over = forms.BooleanField(required=False, label="Take the cluster over from the installation that owns it")
    field_order = ("name", "environment", "budget")

    def is_to_be(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in ("name", "environment", "budget")}

    def wishes(self) -> dict[str, Any]:
        return self.is_to_be() | {"take_over": self.cleaned_data["take_over"]}


class ClusterForm(forms.Form):
    name = forms.CharField(max_length=63)
    environment = forms.ChoiceField(choices=Cluster.Environment.choices)
    budget = forms.IntegerField(min_value=1, max_value=10_000, label="Disruption budget")
    version = forms.IntegerField(widget=forms.HiddenInput)


class PoolForm(forms.Form):
    name = forms.CharField(max_length=63, help_text="Small letters, digits and '-'.")
    selector = forms.CharField(
        max_length=10_000, help_text="As kubectl writes it: pool=train,zone in (a,b),nvidia.com/gpu.present,!spot"
    )
    description = forms.CharField(required=False, max_length=300)
    hold_minutes = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MOST_HOLD_MINUTES,
        label="Hold new nodes for at most, in minutes",
        help_text="A new node that registers with the taint setpoint.dev/untuned takes only pods that tolerate it. "
        "Setpoint removes it when the node is compliant, or after this time. Empty: Setpoint leaves the taint alone.",
    )
    owner = forms.ChoiceField(
        required=False,
        label="Owner",
        help_text="Of the operators, only those with a role in this team may change the pool.",
    )
    version = forms.IntegerField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, owners: Sequence[tuple[str, str]] | None, **options: Any) -> None:
        """`owners` are the choices of an administrator; None: this person may not say who owns it."""
        super().__init__(*args, **options)
        if owners is None:
            del self.fields["owner"]
        else:
            cast("forms.ChoiceField", self.fields["owner"]).choices = owners


def add_errors(form: forms.Form, refusal: Refusal) -> None:
    """Beside the fields that a refusal names, `selector.matchLabels` beside `selector`; else above the form."""
    for name, messages in (refusal.fields or {"": [str(refusal)]}).items():
        field = name.partition(".")[0].partition("[")[0]
        for message in messages:
            form.add_error(field if field in form.fields else None, message)
