"""Conditions of a rule on the claims of a token: what may be asked for, and whether a token meets it. Pure.

A value is compared letter by letter; `*` in it matches any characters but `/` and `:`, so that it never reaches into
the next part of a path or a subject. A rule must name one tenant of its issuer: everyone may have a repository at
GitHub, and a token that GitHub signed proves no more than that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MOST = 20
LONGEST_CLAIM, LONGEST_VALUE = 200, 500

RESERVED = frozenset({"iss", "aud", "exp", "iat", "nbf", "jti"})
"""Checked by themselves: issuer and audience are fields of a rule."""

_PATH = r"[^*/:]+/.*"
_WHOLE = r"[^*]+"
BINDING: Mapping[str, str] = {
    "sub": rf"(repo|project_path):{_PATH}|system:serviceaccount:[^*:]+:.*|{_WHOLE}",
    "repository": _PATH,
    "repository_owner": _WHOLE,
    "repository_id": _WHOLE,
    "repository_owner_id": _WHOLE,
    "project_path": _PATH,
    "project_id": _WHOLE,
    "namespace_path": rf"{_WHOLE}|{_PATH}",
    "namespace_id": _WHOLE,
    "kubernetes.io.namespace": _WHOLE,
    "kubernetes.io.serviceaccount.uid": _WHOLE,
}
"""Claim: the values of a condition that leave room for one tenant of the issuer only. One of them is required."""

_PROPOSED = re.compile(r"refs/(pull|merge-requests)/")
_EVENTS = {"event_name": "pull_request", "pipeline_source": "merge_request"}
"""Claim, and how its values begin, of a run for a change that was proposed, perhaps from outside of the repository."""
_OTHER_EVENTS = frozenset({"external_pull_request_event"})


def errors(conditions: object) -> list[str]:
    """Return what is wrong with the conditions of a rule, one sentence each."""
    if not isinstance(conditions, dict) or not conditions:
        return ["Write at least one condition, such as sub: repo:acme/infra:ref:refs/heads/main."]
    if len(conditions) > MOST:
        return [f"At most {MOST} conditions."]
    wrong = [message for claim, value in conditions.items() if (message := _wrong(claim, value))]
    if not wrong and not any(_binds(claim, value) for claim, value in conditions.items()):
        wrong = [
            "These conditions leave room for anyone with an account at the issuer. Name the subject or the owner up to "
            "its first / or : without *, by one of " + ", ".join(BINDING) + "."
        ]
    return wrong


def objection(conditions: Mapping[str, str], claims: Mapping[str, Any]) -> str:
    """Return why a token with these claims does not meet the conditions; empty when it does."""
    for claim, wanted in conditions.items():
        values = list(_values(claims, claim))
        if len(values) != 1:
            return f"the token has no claim {claim}" if not values else f"the claim {claim} is ambiguous"
        value = _text(values[0])
        if value is None or not pattern(wanted).fullmatch(value):
            shown = "a value that is no text" if value is None else repr(value[:200])
            return f"{claim} is {shown}, not {wanted!r}"
    if (run := _proposed(claims)) and not _asks_for_proposed(conditions):
        return f"the run is for a proposed change ({run}), and the rule does not name such runs"
    return ""


def pattern(value: str) -> re.Pattern[str]:
    return re.compile("[^/:]*".join(re.escape(part) for part in value.split("*")), re.DOTALL)


def _wrong(claim: object, value: object) -> str:
    if not isinstance(claim, str) or not 0 < len(claim) <= LONGEST_CLAIM or not _is_plain(claim):
        return f"{str(claim)[:40]!r} is not the name of a claim."
    if claim in RESERVED:
        return f"{claim} is checked by itself: the issuer and the audience are fields of their own."
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_VALUE or not _is_plain(value):
        return f"{claim}: write a text of 1 to {LONGEST_VALUE} characters without blanks at its ends."
    return ""


def _is_plain(text: str) -> bool:
    return text.isprintable() and text == text.strip()


def _binds(claim: str, value: str) -> bool:
    return claim in BINDING and re.fullmatch(BINDING[claim], value) is not None


def _values(claims: Any, path: str) -> Iterator[Any]:
    """Yield what a dotted path leads to. Names of claims may have dots themselves, as `kubernetes.io` has."""
    if not isinstance(claims, dict):
        return
    if path in claims:
        yield claims[path]
    for place, letter in enumerate(path):
        if letter == "." and path[:place] in claims:
            yield from _values(claims[path[:place]], path[place + 1 :])


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None


def _proposed(claims: Mapping[str, Any]) -> str:
    """Return the claim by which a run of GitHub's or GitLab's is for a pull or merge request; empty: it is not."""
    for claim, begins in _EVENTS.items():
        value = str(claims.get(claim, ""))
        if value.startswith(begins) or value in _OTHER_EVENTS:
            return f"{claim} {value[:60]}"
    for claim in ("ref", "ref_path"):
        if _PROPOSED.match(str(claims.get(claim, ""))):
            return claim
    return "sub" if str(claims.get("sub", "")).endswith(":pull_request") else ""


def _asks_for_proposed(conditions: Mapping[str, str]) -> bool:
    if any(claim in conditions for claim in _EVENTS) or conditions.get("sub", "").endswith(":pull_request"):
        return True
    return any(_PROPOSED.match(conditions.get(claim, "")) for claim in ("ref", "ref_path"))
