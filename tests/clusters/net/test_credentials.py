"""Credentials accepted to connect a cluster, and those refused with line and field."""

from __future__ import annotations

import base64
import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from clusters.net import credentials
from clusters.net.credentials import BadCredentials, Credentials
from tests.controlplane.pki import Authority

NOW = datetime.now(UTC)
AUTHORITY = Authority()
CERTIFICATE, KEY = AUTHORITY.client("me")
CA = base64.b64encode(AUTHORITY.pem.encode()).decode()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def jwt(expires: datetime) -> str:
    parts = ({"alg": "none"}, {"exp": int(expires.timestamp())})
    return ".".join(base64.urlsafe_b64encode(json.dumps(p).encode()).decode().rstrip("=") for p in parts) + ".x"


def kubeconfig(cluster: str = "", user: str = "", *, contexts: str = "", more: str = "", ca: str = CA) -> str:
    """Lines 1 to 11 are fixed: the cluster's own begin at 8, the user's follow."""
    return f"""apiVersion: v1
kind: Config
current-context: one
clusters:
- name: c1
  cluster:
    certificate-authority-data: {ca}
    server: {cluster or "https://10.0.0.1:6443"}
users:
- name: u1
  user:
    {user or "token: abc"}
contexts:
- name: one
  context: {{cluster: c1, user: u1}}
{contexts}{more}"""


def refused(text, **how) -> BadCredentials:
    with pytest.raises(BadCredentials) as refusal:
        credentials.from_kubeconfig(text, now=NOW, **how)
    return refusal.value


def test_a_kubeconfig_with_everything_inline_is_taken():
    parsed = credentials.from_kubeconfig(kubeconfig(), now=NOW)
    assert parsed == Credentials(server="https://10.0.0.1:6443", ca=AUTHORITY.pem, token="abc", context="one")


def test_a_client_certificate_is_taken_with_its_key():
    user = f"client-certificate-data: {encoded(CERTIFICATE)}\n    client-key-data: {encoded(KEY)}"
    parsed = credentials.from_kubeconfig(kubeconfig(user=user), now=NOW)
    assert (parsed.client_certificate, parsed.client_key, parsed.token) == (CERTIFICATE, KEY, "")
    assert NOW < parsed.expires_at() < NOW + timedelta(days=3)


def test_secrets_are_not_in_the_representation_and_survive_storage():
    parsed = credentials.from_token(server="https://a.example", ca="", token="s3cret-token", now=NOW)
    assert "s3cret" not in repr(parsed)
    assert Credentials.from_json({**parsed.to_json(), "of_a_newer_version": "x"}) == parsed


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("exec", "{command: /bin/sh, args: [-c, id]}"),
        ("auth-provider", "{name: gcp}"),
        ("client-certificate", "/etc/passwd"),
        ("client-key", "/etc/shadow"),
        ("tokenFile", "/var/run/secrets/token"),
        ("username", "admin"),
        ("password", "hunter2"),
        ("as", "system:admin"),
        ("surprise", "x"),
    ],
)
def test_a_user_entry_that_runs_reads_or_pretends_is_refused_with_its_line(field, value):
    error = refused(kubeconfig(user=f"token: abc\n    {field}: {value}"))
    assert (error.field, error.line) == (f"users[0].user.{field}", 13)
    assert str(error).startswith(f"line 13: users[0].user.{field}: ")
    assert list(error.fields) == [error.field]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("insecure-skip-tls-verify", "true"),
        ("insecure-skip-tls-verify", '"true"'),
        ("proxy-url", "http://10.0.0.9:3128"),
        ("certificate-authority", "/etc/kubernetes/pki/ca.crt"),
        ("surprise", "x"),
    ],
)
def test_a_cluster_entry_that_trusts_or_detours_is_refused_with_its_line(field, value):
    error = refused(kubeconfig(cluster=f"https://10.0.0.1\n    {field}: {value}"))
    assert (error.field, error.line) == (f"clusters[0].cluster.{field}", 9)


def test_what_is_said_to_be_off_is_no_reason_to_refuse():
    text = kubeconfig(cluster="https://10.0.0.1\n    insecure-skip-tls-verify: false\n    proxy-url: ''")
    assert credentials.from_kubeconfig(text, now=NOW).server == "https://10.0.0.1"


def test_a_program_in_an_unused_user_is_refused_too():
    error = refused(kubeconfig(more="").replace("contexts:", "- {name: u2, user: {exec: {command: id}}}\ncontexts:"))
    assert error.field == "users[1].user.exec"


TWO = "- name: two\n  context: {cluster: c1, user: u1}\n"


def test_several_contexts_are_refused_by_name_until_one_is_chosen():
    error = refused(kubeconfig(contexts=TWO))
    assert error.choices == ("one", "two")
    assert "one, two" in str(error)
    assert error.line == 13
    assert credentials.from_kubeconfig(kubeconfig(contexts=TWO), now=NOW, context="two").context == "two"
    assert "no context 'three'" in str(refused(kubeconfig(contexts=TWO), context="three"))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (kubeconfig().replace("current-context: one", "current-context: gone"), "current-context"),
        (kubeconfig().replace("user: u1", "user: gone"), "contexts[0].context.user"),
        (kubeconfig().replace("cluster: c1,", ""), "contexts[0].context.cluster"),
        (kubeconfig(user="{}"), "users[0].user"),
        (kubeconfig(user="token: 5"), "users[0].user.token"),
        (kubeconfig(user="[1, 2]"), "users[0].user"),
        (kubeconfig(user='token: "a\\r\\nX-Evil: 1"'), "users[0].user.token"),
        (kubeconfig(user=f"token: {jwt(NOW - timedelta(minutes=1))}"), "users[0].user.token"),
        (kubeconfig(ca="abc"), "clusters[0].cluster.certificate-authority-data"),
        (kubeconfig(ca=encoded("not a certificate")), "clusters[0].cluster.certificate-authority-data"),
        (kubeconfig(ca=encoded(KEY)), "clusters[0].cluster.certificate-authority-data"),
        (kubeconfig(more="contexts: []\n"), "kubeconfig"),  # given twice
        ("kind: Pod\napiVersion: v1\n", "kind"),
        ("", "kubeconfig"),
        ("just text", "kubeconfig"),
        ("apiVersion: v1\nkind: Config\n", "contexts"),
        ("apiVersion: v1\nkind: Config\nusers: 3\n", "users"),
        ("apiVersion: v1\nkind: Config\nusers: [3]\n", "users[0]"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_its_field(text, field):
    error = refused(text)
    assert error.field == field, str(error)
    assert error.line


@pytest.mark.parametrize(
    "server",
    [
        "http://10.0.0.1", "10.0.0.1:6443", "https://", "https://user:pw@10.0.0.1", "https://a?b=c", "https://a#b",
        "https://a:0", "https://a:99999", "https://a b", "https://a/../b", "https://a\\b", "file:///etc/passwd",
        "https://a%00b", "https://" + "a" * 3000, "https://ex\u00e4mple.org",
    ],
)  # fmt: skip
def test_a_server_that_is_not_a_plain_https_url_is_refused(server):
    with pytest.raises(BadCredentials) as refusal:
        credentials.from_token(server=server, ca="", token="abc", now=NOW)
    assert refusal.value.field == "server"


@pytest.mark.parametrize(
    "server", ["https://10.0.0.1:6443", "https://[fd00::1]:6443", "https://r.example/k8s/clusters/c-1"]
)
def test_plain_https_urls_are_taken(server):
    assert credentials.from_token(server=server, ca=AUTHORITY.pem, token="abc", now=NOW).server == server


def test_certificates_are_judged_by_date_and_by_their_key():
    later, long_ago = NOW + timedelta(days=30), NOW - timedelta(days=30)

    def user(certificate: str, key: str) -> str:
        return f"client-certificate-data: {encoded(certificate)}\n    client-key-data: {encoded(key)}"

    assert "expired at" in str(refused(kubeconfig(user=user(*AUTHORITY.client("me", at=long_ago)))))
    assert "not valid before" in str(refused(kubeconfig(user=user(*AUTHORITY.client("me", at=later)))))
    other = AUTHORITY.client("other")[1]
    error = refused(kubeconfig(user=user(CERTIFICATE, other)))
    assert (error.field, error.line) == ("users[0].user.client-key-data", 13)
    assert "does not belong" in str(error)
    damaged = CERTIFICATE.replace("MII", "MIX", 1).replace("A", "B", 5)
    assert refused(kubeconfig(user=user(damaged, KEY))).field == "users[0].user.client-certificate-data"
    assert "is missing" in str(refused(kubeconfig(user=f"client-certificate-data: {encoded(CERTIFICATE)}")))
    with pytest.raises(BadCredentials, match="expired at"):
        credentials.from_token(server="https://a", ca=AUTHORITY.pem, token="x", now=NOW + timedelta(days=30))


@pytest.mark.parametrize(
    "text",
    [
        b"\x00\x01\x02\xff\xfe" * 1000,
        b"\xff\xfeC\x00o\x00",
        "a: " + "[" * 200_000,
        "x: &x [1]\ny: *x\n",
        "users:\n" + " [\n" * 100_000,
        "k: v\n" * 200_000,
        "!!python/object/apply:os.system ['id']",
        "- " * 2000,
        "\ud800",
        "{" * 1000,
        "apiVersion: v1\nkind: Config\nclusters: &a [*a]\n",
    ],
)
def test_hostile_text_is_refused_at_once_with_a_line(text):
    began = time.monotonic()
    error = refused(text)
    assert error.line >= 1
    assert time.monotonic() - began < 2  # seconds


def test_a_token_alone_needs_a_token():
    with pytest.raises(BadCredentials, match="token: is required"):
        credentials.from_token(server="https://a", ca="", token=" ", now=NOW)
    with pytest.raises(BadCredentials, match="expired at"):
        credentials.from_token(server="https://a", ca="", token=jwt(NOW), now=NOW)
    soon = NOW + timedelta(hours=1)
    assert credentials.from_token(server="https://a", ca="", token=jwt(soon), now=NOW).expires_at() == soon.replace(
        microsecond=0
    )
