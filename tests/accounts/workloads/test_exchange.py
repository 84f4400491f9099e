"""The exchange of a workload's own token for an API token: what comes of it, and the attacks on it."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from accounts.models import ApiToken, UsedAssertion, WorkloadRule
from accounts.people import services
from accounts.workloads import exchange, issuers, rules
from audit.models import Record
from tests.accounts.signon.issuer import OTHER_KEY, published, signed
from tests.accounts.workloads.claims import GITHUB, KUBERNETES
from tests.accounts.workloads.conftest import AUDIENCE, FORM, GRANT, Bench, call, refused


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
    """The rule has no such scope, though the account administers."""
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
    same = bench.claims(jti="j", exp=int(time.time()) + 200)
    assert bench.post(signed(same)).status_code == 200
    assert bench.post(signed(same | {"exp": same["exp"] + 50})).status_code == 400, "the same jti in another token"


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
    requests = list(bench.issuer.requests)
    bench.post(bench.token())
    assert bench.issuer.requests == requests, "it is not connected to again within seconds"
    assert answer["Retry-After"]


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


def test_address_ranges_of_the_account_hold_as_those_of_the_rule(bench: Bench) -> None:
    bench.rule(networks=["192.0.2.0/24", "198.51.100.0/24"])
    text = bench.post(bench.token(), address="198.51.100.1").json()["access_token"]
    bench.machine.put_marked(networks="192.0.2.0/24 10.0.0.0/8")
    assert call(text, address="198.51.100.1").status_code == 403
    assert bench.post(bench.token(), address="198.51.100.1").status_code == 400
    assert bench.post(bench.token(), address="10.0.0.1").status_code == 400
    text = bench.post(bench.token()).json()["access_token"]
    assert call(text).status_code == 200


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
