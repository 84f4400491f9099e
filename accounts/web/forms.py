from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.password_validation import password_validators_help_text_html

from accounts.access import tokens
from accounts.models import ApiToken, RoleBinding, User
from accounts.passkeys import ceremonies
from accounts.people import scopes


class LinesField(forms.CharField):
    """A list of texts, one a line."""

    def __init__(self, *, placeholder: str = "", **options: Any) -> None:
        attrs = {"rows": 3, "class": "mono", "spellcheck": "false", "placeholder": placeholder}
        super().__init__(max_length=20_000, widget=forms.Textarea(attrs=attrs), **options)

    def clean(self, value: Any) -> list[str]:
        text: str = super().clean(value)
        return [line.strip() for line in text.splitlines() if line.strip()]


class LoginForm(forms.Form):
    email = forms.EmailField(
        max_length=150, widget=forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True})
    )
    password = forms.CharField(
        max_length=1024, strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "current-password"})
    )


def _present_password(**attrs: str) -> forms.CharField:
    return forms.CharField(
        label="Present password",
        max_length=1024,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password", **attrs}),
    )


def _code(*, has_focus: bool) -> forms.CharField:
    attrs = {"autocomplete": "one-time-code", "spellcheck": "false", "autocapitalize": "none"}
    if has_focus:
        attrs["autofocus"] = "autofocus"
    return forms.CharField(max_length=40, widget=forms.TextInput(attrs=attrs))


class CodeForm(forms.Form):
    """A code of the authenticator app, or a recovery code."""

    code = _code(has_focus=True)


class PresentPasswordForm(forms.Form):
    password = _present_password()


class ProofForm(forms.Form):
    """Password and code, for what takes security away."""

    password = _present_password()
    code = _code(has_focus=False)


class PasskeyForm(forms.Form):
    """A passkey that the browser made, with the name that its owner gives it."""

    name = forms.CharField(max_length=60, help_text="By which you recognize it, such as: laptop, blue security key.")
    password = _present_password(id="passkey-password")
    response = forms.CharField(
        max_length=ceremonies.MOST_CHARACTERS,
        widget=forms.HiddenInput,
        error_messages={"required": "The browser sent no passkey. This needs JavaScript, and a browser with passkeys."},
    )


class SetupTokenForm(forms.Form):
    token = forms.CharField(
        label="Set-up token",
        max_length=200,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autofocus": True, "spellcheck": "false"}),
        help_text="The server printed it where it was started, at the end of the link; each start prints a new one.",
    )


class FirstAdministratorForm(forms.Form):
    token = forms.CharField(max_length=200, widget=forms.HiddenInput)
    email = forms.EmailField(
        max_length=150, widget=forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True})
    )
    password = forms.CharField(
        max_length=1024, strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "new-password"})
    )
    again = forms.CharField(
        label="The same password again",
        max_length=1024,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    also_operates = forms.BooleanField(
        required=False,
        initial=True,
        label="I also plan and start changes",
        help_text="Adds the role operator. Another person must still approve your plans.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["password"].help_text = "At least 12 characters, and not a common password."

    def clean_again(self) -> str:
        again: str = self.cleaned_data["again"]
        if "password" in self.cleaned_data and again != self.cleaned_data["password"]:
            raise forms.ValidationError("The two differ.")
        return again


class TokenForm(forms.Form):
    name = forms.CharField(max_length=80, help_text="What uses it, such as: nightly pipeline.")
    scopes = forms.MultipleChoiceField(
        choices=ApiToken.Scope.choices,
        widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
        initial=["read"],
        help_text="It acts as you, and never does more than you may.",
    )
    days = forms.IntegerField(
        min_value=1,
        max_value=tokens.MOST_DAYS,
        initial=30,
        help_text=f"Days until it expires; at most {tokens.APPROVE_DAYS} if it may approve.",
    )
    networks = LinesField(
        required=False,
        label="Address ranges",
        help_text="One a line, such as 10.0.0.0/8: it is accepted from there only.",
    )


class PasswordForm(forms.Form):
    old = _present_password()
    new = forms.CharField(
        label="New password",
        max_length=1024,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["new"].help_text = password_validators_help_text_html()


class ThemeForm(forms.Form):
    theme = forms.ChoiceField(choices=User.Theme.choices, required=False)


class PersonForm(forms.Form):
    email = forms.EmailField(max_length=150)
    is_service = forms.BooleanField(
        required=False, label="A machine's account", help_text="No password: it acts through tokens and never approves."
    )


class LinkForm(forms.Form):
    """A password by its owner, with the link that was made for them."""

    code = forms.CharField(
        max_length=100,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text="The code that belongs to your link; the administrator who proposed it has it.",
    )
    password = forms.CharField(
        max_length=1024, strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "new-password"})
    )
    again = forms.CharField(
        label="The same password again",
        max_length=1024,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def __init__(self, *args: Any, needs_code: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["password"].help_text = "At least 12 characters, and not a common password."
        if not needs_code:
            del self.fields["code"]

    def clean_again(self) -> str:
        again: str = self.cleaned_data["again"]
        if "password" in self.cleaned_data and again != self.cleaned_data["password"]:
            raise forms.ValidationError("The two differ.")
        return again


class BindingForm(forms.Form):
    user = forms.ModelChoiceField(
        User.objects.filter(is_active=True).order_by("email"), label="Who", empty_label="Choose a person"
    )
    role = forms.ChoiceField(choices=RoleBinding.Role.choices)
    scope = forms.ChoiceField(label="Where", initial="*", help_text="An environment also covers clusters added later.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        scope: Any = self.fields["scope"]
        self.names = scopes.names()
        scope.choices = scopes.choices(self.names)
