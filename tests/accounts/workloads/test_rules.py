"""Laws of the rules of workload identity: what they may say, who makes them, and what takes a second administrator."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from django.test import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from accounts.access import networks, tokens
from accounts.models import ApiToken, PendingChange, User, WorkloadRule
from accounts.people import pending
from accounts.people.pending import Proposed
from accounts.workloads import conditions, rules
from audit.models import Record
from common.errors import Invalid, NotAllowed, WrongState
from tests.accounts.signon.issuer import KEY, published, signed
from tests.accounts.workloads.claims import GITHUB
from tests.accounts.workloads.conftest import AUDIENCE, Bench
from tests.factories import TokenClient, UserFactory

WRONG: dict[str, tuple[str, Any]] = {
    "no condition": ("conditions", {}),
    "a claim that binds nobody": ("conditions", {"environment": "prod"}),
    "any branch of anyone": ("conditions", {"ref": "refs/heads/main", "actor": "octocat"}),
    "every subject": ("conditions", {"sub": "*"}),
    "every repository": ("conditions", {"repository": "*/*"}),
    "a repository of any owner": ("conditions", {"repository": "*/infra"}),
    "owners that begin alike": ("conditions", {"repository": "octo*/infra"}),
    "every owner": ("conditions", {"repository_owner": "octo*"}),
    "subjects of any repository": ("conditions", {"sub": "repo:*"}),
    "subjects of owners that begin alike": ("conditions", {"sub": "repo:octo*/x:ref:refs/heads/main"}),
    "subjects of any project": ("conditions", {"sub": "project_path:*/x:ref_type:branch:ref:main"}),
    "accounts of any namespace": ("conditions", {"sub": "system:serviceaccount:*:deploy"}),
    "namespaces that begin alike": ("conditions", {"kubernetes.io.namespace": "ml*"}),
    "a claim that is a field": ("conditions", {"sub": "x", "aud": "y"}),
    "a value of another type": ("conditions", {"sub": 7}),
    "a value with blanks at its ends": ("conditions", {"sub": " x"}),
    "an empty value": ("conditions", {"sub": ""}),
    "too many": ("conditions", {f"c{number}": "x" for number in range(21)}),
    "an issuer without TLS": ("issuer", "http://issuer.example.com"),
    "an issuer that is a document": ("issuer", "https://gitlab.com/.well-known/openid-configuration"),
    "an issuer with a password": ("issuer", "https://a:b@gitlab.com"),
    "an issuer that is a file": ("issuer", "file:///etc/passwd"),
    "the audience of another service": ("audience", "sts.amazonaws.com"),
    "an audience that begins alike": ("audience", f"{AUDIENCE}.evil.example"),
    "no audience": ("audience", ""),
    "a person's account": ("account", "person@example.com"),
    "no account": ("account", "unknown@example.com"),
    "to approve": ("scopes", ["read", "approve"]),
    "an unknown scope": ("scopes", ["everything"]),
    "no scope": ("scopes", []),
    "longer than an hour": ("minutes", 61),
    "no time": ("minutes", 0),
    "an address with a length": ("networks", ["10.0.0.1/8"]),
    "every address": ("networks", ["0.0.0.0/0"]),
    "no range": ("networks", ["example.com"]),
    "a name of two words": ("name", "Deploy all"),
    "a shared key": ("keys", {"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "1"}]}),
    "a private key": ("keys", {"keys": [json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEY))]}),
    "a short key": ("keys", {"keys": [json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(
        rsa.generate_private_key(65537, 1024).public_key()))]}),
    "a key that cannot be read": ("keys", {"keys": [{"kty": "EC", "crv": "P-256", "x": "?", "y": "?"}]}),
    "no key set": ("keys", {"x": 1}),
}  # fmt: skip


@pytest.fixture
def bench_with_people(bench: Bench) -> Bench:
    UserFactory(email="person@example.com", roles=["operator"])
    return bench


@pytest.mark.parametrize(("field", "value"), WRONG.values(), ids=WRONG.keys())
def test_what_no_rule_may_say(bench_with_people: Bench, field: str, value: Any) -> None:
    with pytest.raises(Invalid) as refusal:
        bench_with_people.rule(**{field: value})
    assert list(refusal.value.fields) == [field]
    assert not WorkloadRule.objects.exists()


TENANTS = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
VALUES = st.lists(st.sampled_from(["repo:", "project_path:", "system:serviceaccount:", "*", "a", "b", "/", ":", "."]),
                  min_size=1, max_size=8).map("".join)  # fmt: skip


@settings(max_examples=400, deadline=None, derandomize=True)
@given(claim=st.sampled_from(sorted(conditions.BINDING)), value=VALUES, first=TENANTS, other=TENANTS)
def test_no_rule_accepts_two_owners_at_one_issuer(claim: str, value: str, first: str, other: str) -> None:
    """A rule that may be made accepts at most one of two tokens that differ in nothing but the owner of what ran."""
    if first == other or conditions.errors({claim: value}):
        return
    forms = {
        "sub": ("repo:{}/a:b", "project_path:{}/a:b", "system:serviceaccount:{}:a"),
        "repository": ("{}/a",),
        "project_path": ("{}/a", "{}/a/b"),
        "namespace_path": ("{}", "{}/a"),
    }.get(claim, ("{}",))
    for form in forms:
        accepted = []
        for owner in (first, other):
            inner: dict[str, Any] = {claim: form.format(owner)}
            accepted.append(not conditions.objection({claim: value}, inner))
        assert not all(accepted), (claim, value)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(value=st.text(min_size=1, max_size=20), claim=st.text(min_size=1, max_size=20))
def test_a_value_without_a_star_accepts_itself_alone(value: str, claim: str) -> None:
    is_met = conditions.pattern(value).fullmatch(claim) is not None
    if "*" not in value:
        assert is_met == (value == claim)
    elif is_met:
        assert claim.count("/") == value.count("/")
        assert claim.count(":") == value.count(":")


def test_administrators_of_everything_alone_make_see_disable_and_delete_rules(bench: Bench) -> None:
    rule = bench.rule()
    people = [
        UserFactory(roles=["viewer", "operator", "approver"]),
        UserFactory(roles=["admin@env:production"]),
        UserFactory(is_service=True, roles=["admin"]),
    ]
    for person in people:
        with pytest.raises(NotAllowed):
            rules.make(by=person, **bench.wishes(name="mine"))
        with pytest.raises(NotAllowed):
            rules.set_enabled(rule=rule, is_enabled=False, by=person)
        with pytest.raises(NotAllowed):
            rules.delete(rule=rule, by=person)
    assert list(WorkloadRule.objects.all()) == [rule]


def test_a_token_makes_no_rule_that_is_stronger_than_itself(bench: Bench) -> None:
    """Else a stolen one with the scope admin would plan and apply."""
    client = TokenClient(bench.admin, ["admin", "read"])
    made = client.post("/api/v1/workload-rules", bench.wishes(scopes=["read", "apply"]))
    assert (made.status_code, made.json()["code"]) == (403, "not-allowed")
    assert client.post("/api/v1/workload-rules", bench.wishes(scopes=["read"])).status_code == 201
    rule = bench.rule(name="strong", scopes=["apply"])
    rules.set_enabled(rule=rule, is_enabled=False, by=bench.admin)
    assert client.patch(f"/api/v1/workload-rules/{rule.pk}", {"is_enabled": True}).status_code == 403


def test_a_rule_that_may_administer_waits_for_another_administrator_when_made_and_when_enabled(bench: Bench) -> None:
    other: User = UserFactory(roles=["admin"])
    wishes = bench.wishes(scopes=["read", "admin"], networks=["10.0.0.0/8"])

    done = rules.make(by=bench.admin, **wishes)

    assert isinstance(done, Proposed)
    assert not WorkloadRule.objects.exists()
    with pytest.raises(NotAllowed):
        pending.consent(pk=done.change.pk, by=bench.admin)
    pending.consent(pk=done.change.pk, by=other)
    rule = WorkloadRule.objects.get()
    assert (rule.scopes, rule.networks, rule.conditions) == (["read", "admin"], "10.0.0.0/8", wishes["conditions"])
    assert rule.is_genuine
    rules.set_enabled(rule=rule, is_enabled=False, by=other)
    again = rules.set_enabled(rule=rule, is_enabled=True, by=other)
    assert isinstance(again, Proposed)
    rule.refresh_from_db()
    assert not rule.is_enabled
    pending.consent(pk=again.change.pk, by=bench.admin)
    rule.refresh_from_db()
    assert rule.is_enabled


def test_what_was_proposed_is_judged_again_when_it_is_consented_to(bench: Bench) -> None:
    other: User = UserFactory(roles=["admin"])
    done = rules.make(by=bench.admin, **bench.wishes(scopes=["admin"]))
    assert isinstance(done, Proposed)
    with pytest.raises(WrongState):
        rules.make(by=bench.admin, **bench.wishes(scopes=["admin"]))
    bench.rule(scopes=["read"])  # which takes the name
    with pytest.raises(Invalid):
        pending.consent(pk=done.change.pk, by=other)
    assert PendingChange.objects.get().status == "waiting"


def test_keys_that_are_stored_with_a_rule_replace_the_issuers_and_nothing_is_fetched(bench: Bench) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    bench.rule(keys={"keys": [published(key, "k")]})
    bench.sign = lambda claims: signed(claims, key, "k")
    assert bench.post(bench.token()).status_code == 200
    bench.sign = signed
    assert bench.post(bench.token()).status_code == 400, "what the issuer publishes does not count besides"
    assert bench.issuer.requests == []


def test_the_rest_api_makes_lists_disables_and_deletes_rules(bench: Bench) -> None:
    client = TokenClient(bench.admin)
    wishes = {name: value for name, value in bench.wishes().items() if name != "audience"}
    made = client.post("/api/v1/workload-rules", wishes)
    assert made.status_code == 201, made.content
    rule = made.json()
    assert (rule["audience"], rule["is_enabled"], rule["networks"]) == (AUDIENCE, True, [])
    listed = client.get("/api/v1/workload-rules").json()["results"]
    assert [row["id"] for row in listed] == [rule["id"]]
    unknown = client.patch(made["Location"], {"is_enabled": False, "scopes": ["admin"]})
    assert [error["field"] for error in unknown.json()["errors"]] == ["scopes"]
    assert client.patch(made["Location"], {"is_enabled": False}).json()["is_enabled"] is False
    wrong = client.post("/api/v1/workload-rules", wishes | {"name": "x", "conditions": {"ref": "main"}})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "conditions")
    assert client.delete(made["Location"]).status_code == 204
    assert Record.objects.filter(action__startswith="workload-rule.").count() == 3


def test_the_page_makes_a_rule_and_names_what_is_wrong(bench: Bench) -> None:
    browser = Client()
    browser.force_login(bench.admin)
    sent = bench.wishes(account=bench.machine.pk, conditions=f"sub = {GITHUB['sub']}", networks="", keys="")
    assert browser.post("/workloads/", sent | {"conditions": "sub"}).status_code == 422
    assert browser.post("/workloads/", sent | {"conditions": "sub = a\nsub = b"}).status_code == 422
    assert browser.post("/workloads/", sent | {"keys": "["}).status_code == 422
    assert browser.post("/workloads/", sent | {"networks": "10.0.0.1/8"}).status_code == 422
    assert browser.post("/workloads/", sent).status_code == 302
    rule = WorkloadRule.objects.get()
    assert (rule.conditions, rule.keys, rule.networks) == ({"sub": GITHUB["sub"]}, {}, "")
    page = browser.get("/workloads/").content.decode()
    assert GITHUB["sub"] in page
    assert f"{AUDIENCE}/oauth/token" in page
    browser.post(f"/workloads/{rule.pk}/disable/")
    assert not WorkloadRule.objects.get().is_enabled
    browser.post(f"/workloads/{rule.pk}/enable/")
    assert WorkloadRule.objects.get().is_enabled
    browser.post(f"/workloads/{rule.pk}/delete/")
    assert not WorkloadRule.objects.exists()
    assert browser.post("/workloads/", sent | {"scopes": ["admin"]}).status_code == 302
    assert not WorkloadRule.objects.exists()
    assert GITHUB["sub"] in browser.get("/workloads/").content.decode(), "what is consented to is shown whole"


# ── Address ranges of tokens ──────────────────────────────────────────────────────────────────────────────────────────
def test_a_token_with_address_ranges_is_accepted_from_them_alone(db: None, settings: Any) -> None:
    user: User = UserFactory()
    client = TokenClient(user)
    sent = {"name": "x", "scopes": ["read"], "days": 1, "networks": ["192.0.2.0/24", "::1/128"]}
    made = client.post("/api/v1/tokens", sent).json()
    assert made["networks"] == ["192.0.2.0/24", "::1/128"]

    def call(address: str, **headers: str) -> int:
        headers |= {"Authorization": f"Bearer {made['token']}"}
        return Client().get("/api/v1/me", headers=headers, REMOTE_ADDR=address).status_code

    wanted = {"192.0.2.9": 200, "::ffff:192.0.2.9": 200, "::1": 200, "198.51.100.1": 403, "": 403, "unix:": 403}
    assert {address: call(address) for address in wanted} == wanted
    spoofed = {"X-Forwarded-For": "192.0.2.9"}
    assert call("198.51.100.1", **spoofed) == 403, "without a trusted proxy a header says nothing"
    settings.SETPOINT_PROXIES = 1
    assert call("198.51.100.1", **spoofed) == 200
    assert call("198.51.100.1", **{"X-Forwarded-For": "192.0.2.9, 203.0.113.5"}) == 403
    settings.SETPOINT_PROXIES = 0
    ApiToken.objects.filter(pk=made["id"]).update(networks="")
    assert call("198.51.100.1") == 401, "ranges that were taken away in the table take the token with them"
    assert client.post("/api/v1/tokens", sent | {"networks": ["10.0.0.1/8"]}).json()["errors"][0]["field"] == "networks"


def test_short_lived_tokens_are_deleted_a_week_after_they_expired(bench: Bench, clock: Any) -> None:
    bench.rule()
    bench.post(bench.token())
    mine = TokenClient(bench.admin)
    clock.forward(days=7)
    tokens.forget_old()
    assert ApiToken.objects.filter(kind="workload").count() == 1
    clock.forward(minutes=16)
    tokens.forget_old()
    assert list(ApiToken.objects.all()) == [mine.token]


def test_a_text_of_ranges_that_is_malformed_admits_no_address() -> None:
    assert networks.admits("", "anything")
    assert not networks.admits("10.0.0.0/8", "not an address")
