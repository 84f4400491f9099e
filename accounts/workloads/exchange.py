"""The exchange: a workload's own token in, a short-lived API token out, if exactly one rule accepts it.

Each try is counted for its address before anything is read, as a log-in is, and forgiven when it succeeds. The network
is waited on first; then one transaction locks the rule, spends the token and makes the new one, so that of two at once
with the same token one is refused, and a rule that is disabled meanwhile gives nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import IntegrityError, transaction

from accounts.access import account_ranges, tokens
from accounts.access.jose import LEEWAY_SECONDS
from accounts.access.networks import admits
from accounts.models import ApiToken, LoginAttempt, UsedAssertion, WorkloadRule
from accounts.workloads import assertions, conditions, parameters
from accounts.workloads.assertions import Assertion
from accounts.workloads.parameters import Wish
from accounts.workloads.refusals import ExchangeRefused, NotAccepted
from audit.models import Record
from audit.services import record
from common.clock import now

log = logging.getLogger(__name__)

WINDOW = timedelta(minutes=1)
TRIES = 60
"""Failed tries a minute from one address: many runners may be behind it."""
MOST_LIVE = 500
"""Live tokens of one rule."""
MOST_RECORDED = 30
"""Refusals a minute in the audit record: anyone with a repository at a public issuer can bring a signed token."""
COUNTED_AS = "token exchange"
"""Under which tries are counted; no e-mail address can be this."""
UNFIT = "No rule of this installation accepts this subject_token. The audit record has the reason, for administrators."


@dataclass(frozen=True, slots=True)
class Exchanged:
    token: ApiToken
    text: str
    expires_in: int


def exchange(sent: Mapping[str, Sequence[str]], *, address: str) -> Exchanged:
    """Waits on the network. Raises ExchangeRefused."""
    attempt = _count(address)
    wish = parameters.read(sent)
    assertion = assertions.verify(wish.subject_token)
    try:
        rule = _fitting(assertion, wish, address)
        done = _issue(rule.pk, assertion, wish)
    except NotAccepted as refusal:
        _record_refusal(assertion, refusal, address)
        raise
    attempt.delete()
    return done


def forget_old() -> int:
    """Rows deleted."""
    return UsedAssertion.objects.filter(expires_at__lt=now()).delete()[0]


def _count(address: str) -> LoginAttempt:
    # Not under the address itself: the log-ins of people behind the same one are counted apart.
    counted = f"{address} exchange"[-64:]
    if LoginAttempt.objects.filter(address=counted, at__gt=now() - WINDOW).count() >= TRIES:
        description = "Too many failed exchanges from this address. Wait one minute, then try again."
        raise ExchangeRefused("slow_down", description, status=429, retry_after=int(WINDOW.total_seconds()))
    return LoginAttempt.objects.create(account=COUNTED_AS, address=counted)


def _fitting(assertion: Assertion, wish: Wish, address: str) -> WorkloadRule:
    """Return the one rule that accepts this token. Raises NotAccepted."""
    rules = [rule for rule in assertion.rules if wish.rule in ("", rule.name)]
    if not rules:
        raise NotAccepted(UNFIT, f"no enabled rule {wish.rule} of this issuer", rule=wish.rule)
    objections = {rule.name: _objection(rule, assertion, address) for rule in rules}
    fitting = [rule for rule in rules if not objections[rule.name]]
    if not fitting:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in sorted(objections.items()))
        raise NotAccepted(UNFIT, reasons, rule=rules[0].name if len(rules) == 1 else "")
    if len(fitting) > 1:
        names = ", ".join(rule.name for rule in fitting)
        raise NotAccepted(f"Several rules accept this subject_token: send rule, one of {names}.", f"ambiguous: {names}")
    if wish.audience and wish.audience != fitting[0].audience:
        description = f"A token for the audience {fitting[0].audience} is all that this rule gives."
        raise NotAccepted(description, "another audience was asked for", rule=fitting[0].name, error="invalid_target")
    return fitting[0]


def _objection(rule: WorkloadRule, assertion: Assertion, address: str) -> str:
    audience = assertion.claims["aud"]
    audiences = audience if isinstance(audience, list) else [audience]
    if audiences != [rule.audience]:
        return f"the token is for {str(audience)[:200]}, not for {rule.audience} alone"
    if not admits(rule.networks, address) or not account_ranges.admits(rule.account, address):
        return f"it is not accepted from {address or 'an unknown address'}"
    return conditions.objection(rule.conditions, assertion.claims)


@transaction.atomic
def _issue(pk: UUID, assertion: Assertion, wish: Wish) -> Exchanged:
    rule = WorkloadRule.objects.select_for_update().get(pk=pk)
    _check_account(rule)
    scopes = wish.scopes or tuple(rule.scopes)
    if more := [scope for scope in scopes if scope not in rule.scopes]:
        description = f"The rule gives no scope {', '.join(more)}; it gives {', '.join(rule.scopes)}."
        raise NotAccepted(description, f"asked for {', '.join(more)}", rule=rule.name, error="invalid_scope")
    if rule.tokens.live().count() >= MOST_LIVE:
        description = f"The rule has {MOST_LIVE} tokens that have not expired. Use each for more than one request."
        raise ExchangeRefused("slow_down", description, status=429, retry_after=60)
    if not rule.may_repeat:
        _spend(assertion, rule)
    token, text = tokens.issue_by_rule(rule, subject=assertion.subject, scopes=scopes)
    at = now()
    if rule.used_at is None or rule.used_at <= at - tokens.USED_EVERY:
        WorkloadRule.objects.filter(pk=rule.pk).update(used_at=at)
    record(
        by=f"workload {assertion.subject} (rule {rule.name})",
        action="token.exchange",
        target=f"token:{token.pk}",
        target_name=rule.name,
        after={
            "rule": str(rule.pk),
            "issuer": rule.issuer,
            "subject": assertion.subject,
            "user": rule.account.email,
            "scopes": token.scopes,
            "expires_at": token.expires_at,
        },
    )
    return Exchanged(token, text, expires_in=round((token.expires_at - at).total_seconds()))


def _check_account(rule: WorkloadRule) -> None:
    """Raises NotAccepted where the rule, or the account that it acts as, changed since it was read."""
    account = rule.account
    if not (rule.is_enabled and rule.is_genuine):
        raise NotAccepted(UNFIT, "the rule was disabled or changed meanwhile", rule=rule.name)
    if not (account.is_active and account.is_service and account.is_genuine):
        raise NotAccepted(UNFIT, f"{account.email} is no active service account", rule=rule.name)


def _spend(assertion: Assertion, rule: WorkloadRule) -> None:
    """Remember the token as exchanged; of several at once the database lets one in. Raises NotAccepted."""
    ends = datetime.fromtimestamp(int(assertion.claims["exp"]) + LEEWAY_SECONDS, UTC)
    try:
        with transaction.atomic():
            UsedAssertion.objects.create(digest=assertion.digest, expires_at=ends)
    except IntegrityError:
        description = "This subject_token was exchanged already. Ask its issuer for another."
        raise NotAccepted(description, "the token was exchanged already", rule=rule.name) from None


def _record_refusal(assertion: Assertion, refusal: NotAccepted, address: str) -> None:
    issuer = str(assertion.claims["iss"])
    recent = Record.objects.filter(action="token.refuse-exchange", at__gt=now() - WINDOW)
    if recent.count() >= MOST_RECORDED:
        log.warning("workload identity: a token of %s for %s was refused", issuer, refusal.rule or "no rule")
        return
    record(
        by=f"workload {assertion.subject}",
        action="token.refuse-exchange",
        target=f"issuer:{issuer[:190]}",
        target_name=refusal.rule or issuer,
        message=f"{address}: {refusal.reason}",
        after={"rule": refusal.rule, "issuer": issuer, "subject": assertion.subject},
    )
