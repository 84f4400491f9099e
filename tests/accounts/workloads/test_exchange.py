"""The exchange of a workload's own token for an API token: what comes of it, and the attacks on it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from django.test import Client

from accounts.models import ApiToken, UsedAssertion, WorkloadRule
from accounts.people import services
from accounts.workloads import exchange, issuers, rules
from audit.models import Record
from tests.accounts.signon.issuer import KEY, OTHER_KEY, published, signed
from tests.accounts.workloads.claims import GITHUB, GITHUB_FORK, GITLAB, GITLAB_MERGE_REQUEST, KUBERNETES
from tests.accounts.workloads.conftest import AUDIENCE, FORM, GRANT, Bench


def call(text: str, path: str = "/api/v1/me", *, address: str = "192.0.2.7") -> Any:
    return Client().get(path, headers={"Authorization": f"Bearer {text}"}, REMOTE_ADDR=address)


def refused(answer: Any, error: str = "invalid_request", status: int = 400) -> str:
    """Return the description of a refusal, which made no token."""
    assert (answer.status_code, answer.json()["error"]) == (status, error), answer.content
    assert ApiToken.objects.filter(kind="workload").count() == 0
    return str(answer.json()["error_description"])


def test_a_token_comes_of_it_that_acts_as_the_rules_account_within_its_scopes_and_time(
    bench: Bench, clock: Any
) -> None:
    rule = bench.rule()

    answer = bench.post(bench.token())

    done = answer.json()
    assert answer.status_code == 200, done
    assert answer["Cache-Control"] == "no-store"
    assert (done["token_type"], done["expires_in"], done["scope"]) == ("Bearer", 900, "read plan")
    assert done["issued_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
    me = call(done["access_token"]).json()
    assert (me["email"], me["token"]["kind"], me["token"]["rule"]) == ("ci@example.com", "workload", rule.name)
    entry = Record.objects.get(action="token.exchange")
    assert entry.actor == f"workload {GITHUB['sub']} (rule deploy)"
    assert (entry.after["issuer"], entry.after["user"]) == (bench.issuer.url, "ci@example.com")
    assert done["access_token"] not in str(list(Record.objects.values()) + list(ApiToken.objects.values()))
    clock.forward(minutes=15)
    assert call(done["access_token"]).status_code == 401


def test_it_makes_no_other_token_approves_nothing_and_administers_nothing(bench: Bench) -> None:
    """Not even for an account that administers: the rule has no such scope."""
    bench.machine.bindings.create(role="admin", scope="*")
    bench.rule(scopes=["read", "plan", "apply"])
    text = bench.post(bench.token()).json()["access_token"]
    client = Client(headers={"Authorization": f"Bearer {text}"})

    made = [
        client.post("/api/v1/tokens", {"name": "x", "scopes": ["read"], "days": 9}, "application/json"),
        client.post("/api/v1/workload-rules", bench.wishes(name="mine"), "application/json"),
        client.post("/api/v1/users", {"email": "mallory@example.com"}, "application/json"),
        client.get("/api/v1/users"),
    ]

    assert {answer.status_code for answer in made} == {403}


def test_even_with_the_scope_admin_it_makes_neither_tokens_nor_rules_nor_approvers(bench: Bench) -> None:
    bench.machine.bindings.create(role="admin", scope="*")
    rule = bench.rule()
    rule.put_marked(scopes=["read", "admin"])  # as a second administrator consented to it
    text = bench.post(bench.token()).json()["access_token"]
    client = Client(headers={"Authorization": f"Bearer {text}"})
    assert client.get("/api/v1/users").status_code == 200
    binding = {"user": bench.admin.email, "role": "approver", "scope": "*"}

    made = [
        client.post("/api/v1/tokens", {"name": "x", "scopes": ["read"], "days": 9}, "application/json"),
        client.post("/api/v1/workload-rules", bench.wishes(name="mine"), "application/json"),
        client.patch(f"/api/v1/workload-rules/{rule.pk}", {"is_enabled": False}, "application/json"),
        client.post("/api/v1/users", {"email": "mallory@example.com"}, "application/json"),
        client.post("/api/v1/role-bindings", binding, "application/json"),
    ]

    assert {answer.status_code for answer in made} == {403}


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


def test_an_issuer_that_no_rule_names_is_never_connected_to(bench: Bench) -> None:
    bench.rule(issuer="https://issuer.example.com")
    refused(bench.post(bench.token()))
    assert bench.issuer.requests == []


def test_the_same_key_id_and_subject_of_another_issuer_is_another_workload(bench: Bench) -> None:
    """Both are trusted, each for its own rule."""
    bench.rule()
    keys = {"keys": [published(OTHER_KEY)]}
    bench.rule(name="other", issuer="https://other.example.com", keys=keys, conditions={"sub": "another"})
    bench.sign = lambda claims: signed(claims, OTHER_KEY)
    refused(bench.post(bench.token()))
    refused(bench.post(bench.token(iss="https://other.example.com")))


def test_it_is_exchanged_once_by_its_jti_and_without_one_by_what_is_signed(bench: Bench) -> None:
    bench.rule()
    for token in (bench.token(), bench.token(jti=None)):
        assert bench.post(token).status_code == 200
        again = bench.post(token)
        assert (again.status_code, again.json()["error"]) == (400, "invalid_request")
    assert ApiToken.objects.filter(kind="workload").count() == 2
    same = bench.claims(jti="j", exp=NOW + 200)
    assert bench.post(signed(same)).status_code == 200
    assert bench.post(signed(same | {"exp": NOW + 250})).status_code == 400, "the same jti in another token"


def test_a_pods_token_is_exchanged_again_where_the_rule_says_so(bench: Bench) -> None:
    bench.rule(may_repeat=True, conditions={"kubernetes.io.namespace": "ml-platform"})
    token = bench.token(**KUBERNETES)
    assert [bench.post(token).status_code for _ in range(2)] == [200, 200]
    assert UsedAssertion.objects.count() == 0


def test_what_was_exchanged_is_remembered_until_it_expires(bench: Bench, clock: Any) -> None:
    clock.at = datetime.now(UTC)
    bench.rule()
    bench.post(bench.token())
    exchange.forget_old()
    assert UsedAssertion.objects.count() == 1
    clock.forward(minutes=10)
    exchange.forget_old()
    assert UsedAssertion.objects.count() == 0


def test_a_key_that_its_issuer_removed_is_no_longer_accepted_and_a_new_one_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.rule()
    at = time.monotonic()
    monkeypatch.setattr(issuers.time, "monotonic", lambda: at)
    assert bench.post(bench.token()).status_code == 200
    bench.issuer.answers["/keys"] = (200, {"keys": [published(OTHER_KEY, "2")]})
    bench.sign = lambda claims: signed(claims, OTHER_KEY, "2")
    assert bench.post(bench.token()).status_code == 400, "made-up key ids do not make it ask at once"
    at += issuers.AGAIN_SECONDS
    assert bench.post(bench.token()).status_code == 200
    bench.sign = signed
    assert bench.post(bench.token()).status_code == 400


def test_an_issuer_that_is_away_is_a_clear_refusal_though_its_keys_were_known(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.rule()
    at = time.monotonic()
    monkeypatch.setattr(issuers.time, "monotonic", lambda: at)
    assert bench.post(bench.token()).status_code == 200
    bench.issuer.answers["/.well-known/openid-configuration"] = (500, {})
    at += issuers.KEPT_SECONDS
    answer = bench.post(bench.token())
    assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")
    asked = len(bench.issuer.requests)
    bench.post(bench.token())
    assert len(bench.issuer.requests) == asked, "it is not asked again within seconds"
    assert answer["Retry-After"]


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


def test_where_several_rules_accept_it_the_caller_names_one_and_gets_no_other(bench: Bench) -> None:
    bench.rule()
    bench.rule(name="all-of-it", conditions={"repository": "octo-org/*"}, scopes=["read", "plan", "apply"])
    assert "deploy" in refused(bench.post(bench.token()))
    refused(bench.post(bench.token(), rule="unknown"))
    assert bench.post(bench.token(), rule="deploy").json()["scope"] == "read plan"


def test_less_can_be_asked_for_and_never_more(bench: Bench) -> None:
    bench.rule(scopes=["read", "plan"])
    for scope in ("apply", "approve", "admin", "read admin"):
        refused(bench.post(bench.token(), scope=scope), "invalid_scope")
    refused(bench.post(bench.token(), scope="everything"), "invalid_scope")
    refused(bench.post(bench.token(), audience="https://other.example.com"), "invalid_target")
    assert bench.post(bench.token(), scope="read", audience=AUDIENCE).json()["scope"] == "read"


PARAMETERS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"lifetime": "9"}, "invalid_request"),
    "not offered": ({"actor_token": "x"}, "invalid_request"),
    "resource": ({"resource": AUDIENCE}, "invalid_request"),
    "twice": ({"rule": ["deploy", "deploy"]}, "invalid_request"),
    "another grant": ({"grant_type": "client_credentials"}, "unsupported_grant_type"),
    "no grant": ({"grant_type": ""}, "invalid_request"),
    "another type of token": ({"subject_token_type": "urn:ietf:params:oauth:token-type:saml2"}, "invalid_request"),
    "another type wanted": ({"requested_token_type": "urn:ietf:params:oauth:token-type:jwt"}, "invalid_request"),
    "no token": ({"subject_token": ""}, "invalid_request"),
    "a token without end": ({"subject_token": "a." * 20_000}, "invalid_request"),
}


@pytest.mark.parametrize(("sent", "error"), PARAMETERS.values(), ids=PARAMETERS.keys())
def test_a_request_that_is_not_understood_is_refused(bench: Bench, sent: dict[str, Any], error: str) -> None:
    bench.rule()
    rest = {name: value for name, value in sent.items() if name != "subject_token"}
    refused(bench.post(sent.get("subject_token", bench.token()), **rest), error)


def test_parameters_are_read_from_a_form_in_the_body_alone(bench: Bench) -> None:
    bench.rule()
    sent = {**GRANT, "subject_token": bench.token()}
    client = Client()
    refused(client.post("/oauth/token", json.dumps(sent), content_type="application/json"))
    refused(client.post("/oauth/token?rule=deploy", "", content_type=FORM))
    assert client.get("/oauth/token").status_code == 405


def test_a_rule_that_is_disabled_or_deleted_ends_its_tokens_and_gives_none(bench: Bench) -> None:
    rule = bench.rule()
    text = bench.post(bench.token()).json()["access_token"]
    rules.set_enabled(rule=rule, is_enabled=False, by=bench.admin)
    assert call(text).status_code == 401
    assert bench.post(bench.token()).status_code == 400
    rules.set_enabled(rule=rule, is_enabled=True, by=bench.admin)
    assert call(text).status_code == 401, "what was ended stays ended"
    text = bench.post(bench.token()).json()["access_token"]
    rules.delete(rule=rule, by=bench.admin)
    assert call(text).status_code == 401
    assert bench.post(bench.token()).status_code == 400


def test_a_rule_that_was_disabled_while_its_issuer_was_asked_gives_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule, wait = bench.rule(), exchange._issue

    def meanwhile(*arguments: Any) -> Any:
        rules.set_enabled(rule=rule, is_enabled=False, by=bench.admin)
        return wait(*arguments)

    monkeypatch.setattr(exchange, "_issue", meanwhile)
    refused(bench.post(bench.token()))


@pytest.mark.parametrize(
    "changed",
    [{"conditions": {"sub": "x"}}, {"scopes": ["admin"]}, {"issuer": "https://x.example"}, {"is_enabled": True},
     {"minutes": 60}, {"networks": "10.0.0.0/8"}, {"may_repeat": True}, {"audience": "x"}, {"keys": {"keys": []}}],
    ids=lambda changed: next(iter(changed)),
)  # fmt: skip
def test_a_rule_that_was_written_into_the_table_accepts_nothing(bench: Bench, changed: dict[str, Any]) -> None:
    rule = bench.rule()
    if "is_enabled" in changed:
        rules.set_enabled(rule=rule, is_enabled=False, by=bench.admin)
    WorkloadRule.objects.filter(pk=rule.pk).update(**changed)
    bench.sign = lambda claims: signed(claims | {"iss": changed.get("issuer", claims["iss"])})
    refused(
        bench.post(bench.token(sub=changed.get("conditions", GITHUB)["sub"], aud=changed.get("audience", AUDIENCE)))
    )


def test_an_account_that_was_deactivated_gives_nothing(bench: Bench) -> None:
    bench.rule()
    text = bench.post(bench.token()).json()["access_token"]
    services.change_user(user=bench.machine, by=bench.admin, is_active=False)
    assert call(text).status_code == 401
    assert bench.post(bench.token()).status_code == 400


def test_address_ranges_of_a_rule_hold_for_the_exchange_and_for_its_tokens(bench: Bench) -> None:
    bench.rule(networks=["192.0.2.0/24", "2001:db8::/32"])
    refused(bench.post(bench.token(), address="198.51.100.1"))
    text = bench.post(bench.token(), address="2001:db8::7").json()["access_token"]
    assert call(text).status_code == 200
    assert call(text, address="198.51.100.1").status_code == 403
    assert "198.51.100.1" in Record.objects.get(action="token.refuse").message
    assert call(text, address="198.51.100.1").status_code == 403
    assert Record.objects.filter(action="token.refuse").count() == 1, "once a minute"


def test_failed_tries_are_counted_for_their_address_apart_from_log_ins(bench: Bench, clock: Any) -> None:
    bench.rule()
    for _ in range(exchange.TRIES):
        assert bench.post("rubbish").status_code == 400
    answer = bench.post(bench.token())
    assert (answer.status_code, answer.json()["error"]) == (429, "slow_down")
    assert bench.post(bench.token(), address="192.0.2.8").status_code == 200
    login = Client().post("/login/", {"email": bench.admin.email, "password": "wrong"}, REMOTE_ADDR="192.0.2.7")
    assert login.status_code == 401
    clock.forward(minutes=1)
    assert bench.post(bench.token()).status_code == 200


def test_what_succeeds_is_not_counted_and_a_rules_live_tokens_are_bounded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "TRIES", 2)
    monkeypatch.setattr(exchange, "MOST_LIVE", 4)
    bench.rule()
    assert [bench.post(bench.token()).status_code for _ in range(5)] == [200, 200, 200, 200, 429]


def test_a_refusal_tells_the_record_why_and_the_caller_nothing_of_the_rule(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.rule(conditions={"repository": "secret-org/secret-repo"})
    description = refused(bench.post(bench.token()))
    assert "secret" not in description
    entry = Record.objects.get(action="token.refuse-exchange")
    assert (entry.target_name, entry.after["subject"]) == ("deploy", GITHUB["sub"])
    assert "octo-org/octo-repo" in entry.message
    assert "192.0.2.7" in entry.message
    monkeypatch.setattr(exchange, "MOST_RECORDED", 2)
    for _ in range(3):
        bench.post(bench.token())
    assert Record.objects.filter(action="token.refuse-exchange").count() == 2, "a stranger does not flood the record"
