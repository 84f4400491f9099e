"""Attacks on the exchange: tokens that prove nothing, issuers that lie, and runs that a rule does not mean."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.accounts.signon.issuer import KEY, OTHER_KEY, published, signed
from tests.accounts.workloads.claims import GITHUB, GITHUB_FORK, GITLAB, GITLAB_MERGE_REQUEST, KUBERNETES
from tests.accounts.workloads.conftest import AUDIENCE, Bench, refused

RSA = rsa.generate_private_key(65537, 2048)
NOW = int(time.time())
Sign = Callable[[dict[str, Any]], str]


def over(**changes: Any) -> Sign:
    return lambda claims: signed({n: v for n, v in (claims | changes).items() if v is not None})


def hmac_by_public_key(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, str(published(KEY)["x"]), algorithm="HS256", headers={"kid": "1"})


def jws(payload: str) -> str:
    """Sign what is no set of claims."""
    return jwt.PyJWS().encode(payload.encode(), KEY, algorithm="ES256", headers={"kid": "1"})


def altered(claims: dict[str, Any]) -> str:
    head, _, signature = signed(claims | {"sub": "repo:mallory/x:environment:prod"}).split(".")
    return ".".join((head, signed(claims).split(".")[1], signature))


TOKENS: dict[str, Sign] = {
    "alg none": lambda claims: jwt.encode(claims, None, algorithm="none", headers={"kid": "1"}),
    "the public key as a secret": hmac_by_public_key,
    "another algorithm under the same kid": lambda c: jwt.encode(c, RSA, algorithm="RS256", headers={"kid": "1"}),
    "another key under the same kid": lambda claims: signed(claims, OTHER_KEY),
    "an unpublished key": lambda claims: signed(claims, OTHER_KEY, "2"),
    "altered": altered,
    "without a signature": lambda claims: signed(claims).rpartition(".")[0] + ".",
    "critical header": lambda c: jwt.encode(c, KEY, algorithm="ES256", headers={"kid": "1", "crit": ["x"], "x": 1}),
    "no token": lambda claims: "rubbish",
    "deeply nested": lambda claims: f"{'e30'}.{'W1tb' * 3000}.x",
    "nested without end": lambda c: jwt.utils.base64url_encode(b'{"alg":"ES256","a":' + b"[" * 7000).decode() + ".e30.",
    "another issuer": over(iss="https://evil.example.com"),
    "an issuer with NUL": over(iss="https://evil\0"),
    "an issuer of another type": lambda claims: jws(json.dumps(claims | {"iss": ["x"]})),
    "claims that are a list": lambda claims: jws("[]"),
    "claims that are no JSON": lambda claims: jws("{"),
    "no issuer": over(iss=None),
    "the audience of another service": over(aud="sts.amazonaws.com"),
    "an audience below": over(aud=f"{AUDIENCE}/x"),
    "no audience": over(aud=None),
    "several audiences": over(aud=[AUDIENCE, "https://other.example.com"]),
    "expired": over(exp=NOW - 3600, iat=NOW - 7200),
    "no end": over(exp=None),
    "an end that is no number": over(exp=1e999),
    "a year": over(exp=NOW + 365 * 86400),
    "issued in the future": over(iat=NOW + 3600, exp=NOW + 3900),
    "not valid yet": over(nbf=NOW + 3600),
    "no subject": over(sub=None),
    "another subject": over(sub="repo:octo-org/octo-repo:environment:production"),
    "a longer subject": over(sub=f"{GITHUB['sub']}x"),
    "a subject in capitals": over(sub=str(GITHUB["sub"]).upper()),
    "a subject of two lines": over(sub=f"{GITHUB['sub']}\n"),
    "a subject of another type": over(sub=[GITHUB["sub"]]),
}


@pytest.mark.parametrize("sign", TOKENS.values(), ids=TOKENS.keys())
def test_a_token_that_proves_nothing_gets_nothing(bench: Bench, sign: Sign) -> None:
    bench.rule()
    bench.sign = sign
    assert refused(bench.post(bench.token()))


ANSWERS: dict[str, dict[str, tuple[int, Any]]] = {
    "another issuer's document": {"/.well-known/openid-configuration": (200, {"issuer": "https://evil.example.com"})},
    "no document": {"/.well-known/openid-configuration": (200, ["x"])},
    "elsewhere": {"/.well-known/openid-configuration": (302, {})},
    "no list of keys": {"/keys": (200, {"keys": "x"})},
    "keys that are none": {"/keys": (200, {"keys": [1]})},
    "too many keys": {"/keys": (200, {"keys": [{}] * 1000})},
    "too long": {"/keys": (200, b"[" + b" " * 2_000_000)},
    "no JSON": {"/keys": (200, b"<html>")},
}


@pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS.keys())
def test_an_issuer_that_publishes_no_keys_is_away(bench: Bench, answers: dict[str, Any]) -> None:
    bench.rule()
    bench.issuer.answers |= answers
    refused(bench.post(bench.token()), "temporarily_unavailable", 503)


def test_an_address_that_the_egress_policy_forbids_is_not_connected_to(bench: Bench, settings: Any) -> None:
    bench.rule()
    settings.SETPOINT_ALLOW_NETWORKS = []
    refused(bench.post(bench.token()), "temporarily_unavailable", 503)
    assert bench.issuer.requests == []


RUNS: dict[str, tuple[dict[str, str], dict[str, Any], bool]] = {
    "GitHub, an environment": ({"repository": "octo-org/octo-repo", "environment": "prod"}, GITHUB, True),
    "GitHub, another environment": ({"repository": "octo-org/octo-repo", "environment": "dev"}, GITHUB, False),
    "GitHub, a repository of the owner": ({"repository": "octo-org/*", "ref": "refs/heads/main"}, GITHUB, True),
    "GitHub, a longer owner": ({"repository": "octo-org/*"}, GITHUB | {"repository": "octo-orgs/x"}, False),
    "GitHub, a fork's pull request": ({"repository": "octo-org/octo-repo"}, GITHUB_FORK, False),
    "GitHub, a fork that names its branch main": ({"repository_owner": "octo-org"}, GITHUB_FORK, False),
    "GitHub, pull requests by a pattern": ({"sub": "repo:octo-org/octo-repo:*"}, GITHUB_FORK, False),
    "GitHub, pull_request_target": (
        {"repository": "octo-org/octo-repo"}, GITHUB | {"event_name": "pull_request_target"}, False,
    ),
    "GitHub, pull requests by name": (
        {"repository": "octo-org/octo-repo", "event_name": "pull_request"}, GITHUB_FORK, True,
    ),
    "GitLab, a project": ({"project_path": "my-group/my-project", "ref_type": "branch"}, GITLAB, True),
    "GitLab, a protected branch": ({"project_path": "my-group/my-project", "ref_protected": "true"}, GITLAB, False),
    "GitLab, a merge request": ({"project_path": "my-group/my-project"}, GITLAB_MERGE_REQUEST, False),
    "GitLab, a group": ({"namespace_path": "my-group"}, GITLAB, True),
    "GitLab, a number": ({"namespace_path": "my-group", "runner_id": "1"}, GITLAB, True),
    "GitLab, a list": ({"namespace_path": "my-group", "user_identities": "*"}, GITLAB, False),
    "Kubernetes, an account": ({"sub": "system:serviceaccount:ml-platform:trainer"}, KUBERNETES, True),
    "Kubernetes, by its claims": (
        {"kubernetes.io.namespace": "ml-platform", "kubernetes.io.serviceaccount.name": "trainer"}, KUBERNETES, True,
    ),
    "Kubernetes, another namespace": ({"kubernetes.io.namespace": "ml"}, KUBERNETES, False),
    "Kubernetes, a claim that is spelled in two ways": (
        {"kubernetes.io.namespace": "ml-platform"}, KUBERNETES | {"kubernetes.io.namespace": "ml-platform"}, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("conditions", "claims", "is_accepted"), RUNS.values(), ids=RUNS.keys())
def test_runs_of_github_gitlab_and_kubernetes(
    bench: Bench, conditions: dict[str, str], claims: dict[str, Any], is_accepted: bool
) -> None:
    bench.rule(conditions=conditions)
    dropped = dict.fromkeys(GITHUB.keys() - claims.keys())
    answer = bench.post(bench.token(**dropped, **claims))
    assert (answer.status_code == 200) == is_accepted, answer.content
