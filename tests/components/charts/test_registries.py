"""OCI registries that give a chart, and all that lie, redirect, or want a token."""

from __future__ import annotations

import pytest

from components.charts import store
from tests.components.charts.fetching import BASIC, oci, refusal
from tests.components.packing import tiny

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def loopback(settings):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8", "::1/128"]


def test_a_chart_comes_from_a_registry(server):
    server.artifact(tiny())
    assert bytes(store.fetch(oci(server), "1.2.3").content) == tiny()


def test_a_registrys_tags_are_versions_newest_first(server):
    server.artifact(tiny(), tag="1.2.3_build.5")
    assert store.versions(oci(server)) == ["1.2.3+build.5", "1.2.2"]


def test_a_registry_that_wants_a_token_gets_one_made_with_the_password(server, elsewhere):
    digest = server.artifact(tiny())
    paths = ("/v2/charts/tiny/manifests/1.2.3", f"/v2/charts/tiny/blobs/{digest}")
    server.wanted = dict.fromkeys(paths, "Bearer t0ken")
    realm = elsewhere.url("/token", "localhost")
    server.challenge = f'Bearer realm="{realm}",service="reg",scope="repository:charts/tiny:pull"'
    elsewhere.say("/token", {"token": "t0ken"})
    elsewhere.wanted = {"/token?service=reg&scope=repository%3Acharts%2Ftiny%3Apull": BASIC}

    chart = oci(server, f"localhost:{elsewhere.port}", username="robot", password="hunter2")

    assert store.fetch(chart, "1.2.3")
    assert [authorization for _, authorization in server.asked] == ["", "Bearer t0ken", "Bearer t0ken"]
    assert elsewhere.asked == [("/token?service=reg&scope=repository%3Acharts%2Ftiny%3Apull", BASIC)]


def test_a_registry_that_wants_a_password_gets_it(server):
    server.artifact(tiny())
    server.wanted = {"/v2/charts/tiny/manifests/1.2.3": BASIC}
    assert store.fetch(oci(server, username="robot", password="hunter2"), "1.2.3")


def test_a_token_is_not_asked_of_a_host_that_nobody_named(server, elsewhere):
    server.wanted = {"/v2/charts/tiny/manifests/1.2.3": "Bearer x"}
    server.challenge = f'Bearer realm="{elsewhere.url("/token")}"'
    error = refusal(oci(server, username="robot", password="hunter2"))
    assert "a host that it does not name" in str(error)
    assert elsewhere.asked == []


def test_a_blob_kept_elsewhere_is_fetched_without_the_token(server, elsewhere):
    digest = server.artifact(tiny())
    server.say(f"/v2/charts/tiny/blobs/{digest}", status=307, Location=elsewhere.url("/blob"))
    elsewhere.say("/blob", tiny())
    server.wanted = {"/v2/charts/tiny/manifests/1.2.3": "Bearer t0ken"}
    server.challenge = f'Bearer realm="{server.url("/token")}"'
    server.say("/token", {"access_token": "t0ken"})
    assert store.fetch(oci(server, f"127.0.0.1:{elsewhere.port}"), "1.2.3")
    assert elsewhere.asked == [("/blob", "")]


def test_a_token_that_does_not_help_is_not_asked_for_again(server):
    server.wanted = {"/v2/charts/tiny/manifests/1.2.3": "Bearer other"}
    server.challenge = f'Bearer realm="{server.url("/token")}"'
    server.say("/token", {"token": "t0ken"})
    assert "(401)" in str(refusal(oci(server)))
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"nope", "is not JSON"),
        ([], "is not JSON"),
        ({}, "holds none"),
        ({"token": 5}, "holds none"),
        ({"token": "a\r\nb"}, "holds none"),
        ({"token": ""}, "holds none"),
    ],
)
def test_an_answer_without_a_token_is_refused(server, answer, words):
    server.wanted = {"/v2/charts/tiny/manifests/1.2.3": "Bearer x"}
    server.challenge = f'Bearer realm="{server.url("/token")}"'
    server.say("/token", answer)
    assert words in str(refusal(oci(server)))


@pytest.mark.parametrize("challenge", ["", "Negotiate", 'Basic realm="x"', "Bearer", 'Bearer service="x"'])
def test_a_challenge_that_cannot_be_met_is_said(server, challenge):
    server.wanted = {"/v2/charts/tiny/manifests/1.2.3": "Bearer x"}
    server.challenge = challenge
    assert "wants a user name and password" in str(refusal(oci(server)))


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (b"<html>", "is not JSON"),
        ([], "is not a JSON object"),
        ({}, "is no helm chart"),
        ({"layers": [5, {"mediaType": "application/vnd.docker.image"}]}, "is no helm chart"),
        ({"layers": [{"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip"}]}, "has no SHA-256 digest"),
    ],
)
def test_a_manifest_that_is_none_is_refused(server, manifest, words):
    server.say("/v2/charts/tiny/manifests/1.2.3", manifest)
    assert words in str(refusal(oci(server)))


def test_a_blob_with_another_digest_is_refused(server):
    digest = server.artifact(tiny())
    server.say(f"/v2/charts/tiny/blobs/{digest}", tiny(a="a: 1"))
    assert "as the repository says itself" in str(refusal(oci(server)))


@pytest.mark.parametrize("version", ["../../x", "", "a b", "x" * 129])
def test_a_version_that_is_none_reaches_no_address(server, version):
    assert "is not a version" in str(refusal(oci(server), version))
    assert server.asked == []
