"""Refusals of the token endpoint, in the form of RFC 6749, section 5.2, and RFC 8693, section 2.2.2."""

from __future__ import annotations


class ExchangeRefused(Exception):
    """`error` is the word for programs. The description quotes no token, and tells of no rule's conditions."""

    def __init__(self, error: str, description: str, *, status: int = 400, retry_after: int = 0) -> None:
        super().__init__(description)
        self.error = error
        self.description = description
        self.status = status
        self.retry_after = retry_after


class NotAccepted(ExchangeRefused):
    """A token that its issuer signed for this installation, and no rule accepts. `reason` is for the audit record."""

    def __init__(self, description: str, reason: str, *, rule: str = "", error: str = "invalid_request") -> None:
        super().__init__(error, description)
        self.reason = reason
        self.rule = rule


def bad_token(description: str) -> ExchangeRefused:
    """RFC 8693 names invalid_request for a subject token that is invalid or unacceptable for any reason."""
    return ExchangeRefused("invalid_request", description)
