"""Refusals of a log-in by single sign-on. Each says what happened and what to do; none quotes a token or an answer."""

from __future__ import annotations

from common.errors import Refusal


class SignOnRefused(Refusal):
    """Base. `str()` says what happened, `advice` what to do, `is_operators` whether only the operator can do it."""

    status = 403
    code = "sign-on-refused"
    advice = "Try again. If it happens again, tell an administrator."

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice or self.advice


class ProviderDown(SignOnRefused):
    """The provider gave no usable answer."""

    status = 502
    code = "provider-unavailable"
    advice = "Try again in a few minutes. Sessions that exist continue."


class Expired(SignOnRefused):
    """This browser has no log-in in progress that the answer belongs to: too old, used, or begun elsewhere."""

    status = 400
    code = "sign-on-expired"
    advice = "Start again from this page, and finish within ten minutes in the same browser."


class Cancelled(SignOnRefused):
    code = "sign-on-cancelled"
    advice = "Log in again when you are ready. If you did not cancel, you may lack access to this application there."


class Misconfigured(SignOnRefused):
    """Wrong settings, here or at the provider."""

    status = 502
    code = "sign-on-misconfigured"
    advice = "Tell the operator of this installation: it needs a change of settings, here or at the provider."


class BadToken(SignOnRefused):
    """The provider's token proves nothing."""

    code = "sign-on-token"


class BadClaims(SignOnRefused):
    """Claims about the person that cannot be used."""

    code = "sign-on-claims"
    advice = (
        "Tell the operator of this installation which message you see; the provider's configuration needs a change."
    )


class NoRole(SignOnRefused):
    code = "sign-on-no-role"
    advice = "Ask for membership in a group that this installation gives a role, then log in again."


class AccountExists(SignOnRefused):
    code = "sign-on-account-exists"


class Closed(SignOnRefused):
    """The account may not log in."""

    code = "sign-on-account-closed"
    advice = "Ask an administrator of this installation."


class Outside(SignOnRefused):
    """The browser's address is in none of the account's ranges."""

    code = "sign-on-outside"
    advice = "Log in from a network that your account is limited to, or ask an administrator of this installation."
