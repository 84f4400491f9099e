"""Rules of administrators: whose outside tokens are exchanged, and for what. A rule is made, enabled, disabled and
deleted, never changed, so what was reviewed is what holds.

A rule gives what an administrator could give with a token of a service account, and never more: no scope approve, no
longer than an hour, no scope that its author's own token lacks. One whose tokens may administer takes a second
administrator's consent, when it is made and when it is enabled again.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import jwt
from django.conf import settings
from django.db import IntegrityError, transaction

from accounts.access.jose import LEAST_RSA_BITS
from accounts.access.networks import canonical
from accounts.access.tokens import MOST_MINUTES
from accounts.models import ApiToken, PendingChange, User, WorkloadRule
from accounts.people import pending
from accounts.people.pending import Proposed
from accounts.permissions import GLOBAL, Role, require_person
from accounts.providers import issuer_objection
from accounts.workloads import conditions as claim_conditions
from accounts.workloads.parameters import RULE_NAME
from audit.services import record
from common.clock import now
from common.errors import Invalid, Missing, NotAllowed, WrongState

SCOPES = tuple(scope for scope in ApiToken.Scope.values if scope != ApiToken.Scope.APPROVE)
MOST_RULES = 200
MOST_KEYS = 20
LONGEST_URL = 500
FIELDS = ("name", "issuer", "audience", "account", "conditions", "scopes", "minutes", "may_repeat", "networks", "keys")
MADE, ENABLED = "workload-rule.make", "workload-rule.enable"
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


def default_audience() -> str:
    """Return the audience that names this installation."""
    return str(settings.BASE_URL).rstrip("/")


@transaction.atomic
def make(*, by: User, **wishes: Any) -> WorkloadRule | Proposed:
    """Make a rule of these fields: name, issuer, audience, account (an email), conditions, scopes, minutes, keys,
    networks, may_repeat. Raises NotAllowed, Invalid, WrongState.

    Proposed: its tokens may administer, so it waits for another administrator's consent.
    """
    require_person(by, Role.ADMIN, GLOBAL, "make a rule for workloads")
    fields = _checked(wishes)
    if by.acting_token and (more := set(fields["scopes"]) - set(by.acting_token.scopes)):
        raise NotAllowed(f"A token cannot make a stronger one: yours has no scope {', '.join(sorted(more))}.")
    if ApiToken.Scope.ADMIN in fields["scopes"]:
        target, wanted = f"workload-rule:{fields['name']}", _as_wanted(fields)
        return pending.propose(kind=MADE, by=by, about=_in_words(fields), target=target, wanted=wanted)
    return _make(fields, by)


@transaction.atomic
def set_enabled(*, rule: WorkloadRule, is_enabled: bool, by: User) -> WorkloadRule | Proposed:
    """Disabling ends the rule's tokens at once. Raises NotAllowed, WrongState."""
    require_person(by, Role.ADMIN, GLOBAL, "change a rule for workloads")
    row = WorkloadRule.objects.select_for_update().get(pk=rule.pk)
    if row.is_enabled == is_enabled:
        return row
    if not is_enabled:
        row.put_marked(is_enabled=False)
        record(by=by, action="workload-rule.disable", target=f"workload-rule:{row.pk}", target_name=row.name,
               after={"ended": _end_tokens(row)})  # fmt: skip
        return row
    if not row.is_genuine:
        raise WrongState(f"The rule {row.name} was changed in the database. Delete it and make another.")
    if by.acting_token and (more := set(row.scopes) - set(by.acting_token.scopes)):
        raise NotAllowed(f"A token cannot make a stronger one: yours has no scope {', '.join(sorted(more))}.")
    if ApiToken.Scope.ADMIN in row.scopes:
        about = f"Enabled again: {_in_words(_fields_of(row))}"
        target = f"workload-rule:{row.name}"
        return pending.propose(kind=ENABLED, by=by, about=about, target=target, wanted={"rule": str(row.pk)})
    return _enable(row, by)


@transaction.atomic
def delete(*, rule: WorkloadRule, by: User) -> None:
    """Delete it and end its tokens. Raises NotAllowed."""
    require_person(by, Role.ADMIN, GLOBAL, "delete a rule for workloads")
    WorkloadRule.objects.select_for_update().get(pk=rule.pk)
    after = {"ended": _end_tokens(rule)}
    record(by=by, action="workload-rule.delete", target=f"workload-rule:{rule.pk}", target_name=rule.name,
           before=_as_wanted(_fields_of(rule)), after=after)  # fmt: skip
    rule.delete()


def register() -> None:
    pending.KINDS[MADE] = _consented_make
    pending.KINDS[ENABLED] = _consented_enable


def _consented_make(row: PendingChange, by: User) -> None:
    _make(_checked(row.wanted), by)


def _consented_enable(row: PendingChange, by: User) -> None:
    rule = WorkloadRule.objects.select_for_update().filter(pk=row.wanted["rule"]).first()
    if rule is None:
        raise Missing("The rule was deleted since this was proposed: refuse it.")
    if not rule.is_genuine:
        raise WrongState(f"The rule {rule.name} was changed in the database: refuse this, and delete the rule.")
    if not rule.is_enabled:
        _enable(rule, by)


def _enable(row: WorkloadRule, by: User) -> WorkloadRule:
    row.put_marked(is_enabled=True)
    record(by=by, action="workload-rule.enable", target=f"workload-rule:{row.pk}", target_name=row.name)
    return row


def _make(fields: Mapping[str, Any], by: User) -> WorkloadRule:
    try:
        with transaction.atomic():
            row = WorkloadRule.objects.create(**fields, made_by=by.email)
    except IntegrityError:
        raise Invalid("The rule was not made.", fields={"name": ["A rule has this name."]}) from None
    record(by=by, action="workload-rule.make", target=f"workload-rule:{row.pk}", target_name=row.name,
           after=_as_wanted(fields))  # fmt: skip
    return row


def _end_tokens(rule: WorkloadRule) -> int:
    return ApiToken.objects.filter(rule=rule, revoked_at=None, expires_at__gt=now()).update(revoked_at=now())


# ── What a rule may say ───────────────────────────────────────────────────────────────────────────────────────────────
def _checked(wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row. Raises Invalid naming each that is wrong."""
    networks, wrong_networks = canonical(wishes.get("networks") or ())
    keys, wrong_keys = _keys(wishes.get("keys"))
    account = User.objects.filter(email=str(wishes["account"]).lower()).first()
    errors = {
        "name": _name_errors(wishes["name"]),
        "issuer": _issuer_errors(wishes["issuer"]),
        "audience": _audience_errors(wishes["audience"]),
        "conditions": claim_conditions.errors(wishes["conditions"]),
        "account": _account_errors(account),
        "scopes": _scope_errors(wishes["scopes"]),
        "minutes": [] if 1 <= wishes["minutes"] <= MOST_MINUTES else [f"Write 1 to {MOST_MINUTES} minutes."],
        "networks": wrong_networks,
        "keys": wrong_keys,
    }
    if errors := {name: messages for name, messages in errors.items() if messages}:
        raise Invalid("The rule was not made.", fields=errors)
    return {
        "name": wishes["name"],
        "issuer": wishes["issuer"],
        "audience": wishes["audience"],
        "account": account,
        "conditions": dict(wishes["conditions"]),
        "scopes": [scope for scope in SCOPES if scope in wishes["scopes"]],
        "minutes": wishes["minutes"],
        "may_repeat": bool(wishes.get("may_repeat")),
        "networks": networks,
        "keys": keys,
    }


def _name_errors(name: str) -> list[str]:
    if not RULE_NAME.fullmatch(name):
        return ["Lowercase letters, digits and -, at most 40: programs name the rule by it."]
    if WorkloadRule.objects.filter(name=name).exists():
        return ["A rule has this name."]
    return [f"There are {MOST_RULES} rules already."] if WorkloadRule.objects.count() >= MOST_RULES else []


def _issuer_errors(issuer: str) -> list[str]:
    objection = issuer_objection(issuer)
    if not objection and (len(issuer) > LONGEST_URL or not issuer.isprintable() or issuer != issuer.strip()):
        objection = f"must be at most {LONGEST_URL} characters without blanks"
    return [f"The issuer {objection}."] if objection else []


def _audience_errors(audience: str) -> list[str]:
    base = default_audience()
    if (
        (audience == base or audience.startswith(f"{base}/"))
        and len(audience) <= LONGEST_URL
        and audience.isprintable()
    ):
        return []
    return [f"It must name this installation, so that tokens for other services count for nothing: {base}, or below."]


def _account_errors(account: User | None) -> list[str]:
    if account is None:
        return ["No account has this address."]
    if not account.is_service:
        return ["Choose a service account: a workload never acts as a person."]
    return [] if account.is_active else [f"{account.email} is deactivated."]


def _scope_errors(scopes: Sequence[str]) -> list[str]:
    if ApiToken.Scope.APPROVE in scopes:
        return ["A workload never approves: an approval is a person's."]
    if unknown := [scope for scope in scopes if scope not in SCOPES]:
        return [f"{unknown[0]!r} is not a scope; there are {', '.join(SCOPES)}."]
    return [] if scopes else ["Choose at least one scope."]


def _keys(given: Any) -> tuple[dict[str, Any], list[str]]:
    """Return a JWKS of public keys, empty where none is given, and what is wrong with it."""
    if not given:
        return {}, []
    rows = given.get("keys") if isinstance(given, dict) else None
    if not isinstance(rows, list) or not 1 <= len(rows) <= MOST_KEYS or not all(isinstance(row, dict) for row in rows):
        return {}, [f"Write a JSON Web Key Set with 1 to {MOST_KEYS} keys, as the issuer publishes it."]
    for row in rows:
        name = _plain(str(row.get("kid", "")))[:40] or "without a kid"
        if _PRIVATE & row.keys() or row.get("kty") == "oct":
            return {}, [f"The key {name} is a private or shared one. Give the public keys only."]
        try:
            key = jwt.PyJWK(row).key
        except (jwt.PyJWTError, ValueError, TypeError):
            return {}, [f"The key {name} cannot be read."]
        if getattr(key, "key_size", LEAST_RSA_BITS) < LEAST_RSA_BITS and row.get("kty") == "RSA":
            return {}, [f"The key {name} has fewer than {LEAST_RSA_BITS} bits."]
    return {"keys": rows}, []


def _plain(text: str) -> str:
    return "".join(letter for letter in text if unicodedata.category(letter)[0] != "C")


def _fields_of(row: WorkloadRule) -> dict[str, Any]:
    names = (
        "name",
        "issuer",
        "audience",
        "account",
        "conditions",
        "scopes",
        "minutes",
        "may_repeat",
        "networks",
        "keys",
    )
    return {name: getattr(row, name) for name in names}


def _as_wanted(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields as they were asked for, in JSON."""
    return {**fields, "account": fields["account"].email, "networks": fields["networks"].split()}


def _in_words(fields: Mapping[str, Any]) -> str:
    conditions = json.dumps(fields["conditions"], ensure_ascii=False)
    return (
        f"Workloads of {fields['issuer']} act as {fields['account']} with the scopes {', '.join(fields['scopes'])}, "
        f"where {conditions}."
    )
