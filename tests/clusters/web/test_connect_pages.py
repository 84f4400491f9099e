"""Pages that connect a cluster and rotate its credential."""

from __future__ import annotations

import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from clusters.connection import registry
from clusters.models import Cluster
from tests.clusters.factories import (
    ClusterFactory,
)
from tests.clusters.web.addresses import KUBECONFIG, URL, at

pytestmark = pytest.mark.django_db


def test_test_looks_and_connect_stores(log_in, shown, sim):
    admin = log_in("admin")
    form = {"name": "atlas", "environment": "staging", "budget": "2", "kubeconfig": KUBECONFIG}

    answer = admin.post(at("connect"), form | {"intent": "test"})
    assert (answer.status_code, shown["verdict"].is_connectable, Cluster.objects.count()) == (200, True, 0)
    assert shown["form"]["kubeconfig"].value() == KUBECONFIG
    assert "no-store" in answer["Cache-Control"]
    answer = admin.post(at("connect"), form | {"intent": "connect"})

    cluster = Cluster.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, at("cluster", cluster.pk))
    assert (cluster.budget, registry.credentials(cluster).token) == (2, "s3cret")


def test_the_test_judges_the_name_beside_the_cluster(log_in, shown, sim):
    taken = ClusterFactory(name="taken").name
    form = {"environment": "staging", "budget": "2", "kubeconfig": KUBECONFIG, "intent": "test"}
    admin = log_in("admin")
    for name, message in (("Atlas_1", "Small letters"), (taken, "already")):
        admin.post(at("connect"), form | {"name": name})
        assert message in str(shown["form"].errors["name"])
        assert shown["verdict"] is not None, "the cluster is asked all the same"


def test_a_kubeconfig_of_several_contexts_lets_one_be_chosen(log_in, sim):
    several = KUBECONFIG.replace("contexts: [", "contexts: [{name: y, context: {cluster: c, user: u}}, ")
    admin = log_in("admin")
    form = {"name": "atlas", "environment": "staging", "budget": "2", "kubeconfig": several, "intent": "test"}

    refused = admin.post(at("connect"), form).content.decode()
    assert "these are the contexts of the kubeconfig" in refused
    options = re.search(r'<select name="context".*?</select>', refused, re.DOTALL)[0]
    assert re.findall(r'<option value="(\w*)"', options) == ["", "y", "x"]
    assert "s3cret" in refused, "nothing typed is lost"
    assert admin.post(at("connect"), form | {"context": "x"}).context["verdict"].is_connectable


def test_an_uploaded_file_is_read_and_kept_for_the_second_click(log_in, shown, sim):
    upload = SimpleUploadedFile("config", KUBECONFIG.encode())

    log_in("admin").post(
        at("connect"), {"name": "a", "environment": "staging", "budget": "1", "upload": upload, "intent": "test"}
    )

    assert shown["verdict"].is_connectable
    assert shown["form"]["kubeconfig"].value() == KUBECONFIG


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kubeconfig": KUBECONFIG.replace("token: s3cret", "exec: {command: sh}")}, "kubeconfig"),
        ({"kubeconfig": "{" * 500}, "kubeconfig"),
        ({"kubeconfig": ""}, "kubeconfig"),
        ({"kubeconfig": "", "server": "http://x", "token": "t"}, "server"),
        ({"kubeconfig": "", "server": URL, "token": "a b"}, "token"),
        ({"kubeconfig": KUBECONFIG, "server": URL, "token": "t"}, "kubeconfig"),
        ({"name": "Not A Name"}, "name"),
        ({"budget": "0"}, "budget"),
        ({"environment": "moon"}, "environment"),
        ({"upload": SimpleUploadedFile("config", b"\xff\xfe\x00"), "kubeconfig": ""}, "upload"),
        ({"upload": SimpleUploadedFile("config", b"a" * 300_000), "kubeconfig": ""}, "upload"),
    ],
)
def test_an_error_stands_beside_its_field_and_nothing_typed_is_lost(log_in, shown, sim, change, field):
    form = {"name": "atlas", "environment": "staging", "budget": "1", "kubeconfig": KUBECONFIG, "intent": "connect"}

    answer = log_in("admin").post(at("connect"), form | change)

    assert answer.status_code == 422
    assert field in shown["form"].errors
    assert shown["form"]["name"].value() == (form | change)["name"]
    assert not Cluster.objects.exists()


def test_a_name_that_is_refused_costs_no_second_test(log_in, sim):
    form = {"name": "Not a name", "environment": "staging", "budget": "1", "kubeconfig": KUBECONFIG}
    admin = log_in("admin")
    assert 'value="connect"' not in admin.get(at("connect")).content.decode()

    refused = admin.post(at("connect"), form | {"intent": "connect"}).content.decode()

    assert 'aria-invalid="true"' in refused
    assert 'value="connect"' in refused


def test_a_cluster_that_was_just_connected_is_not_said_to_be_lost(log_in):
    page = log_in("admin").get(at("cluster", ClusterFactory(reach="never").pk)).content.decode()
    assert "being read for the first time" in page
    assert "Its nodes are unknown" not in page


def test_what_the_cluster_lacks_is_said_beside_the_credential(log_in, shown, sim):
    sim.faults.outage = True
    form = {"name": "atlas", "environment": "staging", "budget": "1", "kubeconfig": KUBECONFIG, "intent": "connect"}

    log_in("admin").post(at("connect"), form)

    assert "does not answer" in str(shown["form"].errors["kubeconfig"])


def test_a_credential_is_rotated_from_its_page(log_in, shown, sim):
    cluster = ClusterFactory(uid=sim.uid, server=URL)

    log_in("admin").post(at("rotate", cluster.pk), {"server": URL, "token": "fresh", "intent": "connect"})

    assert registry.credentials(Cluster.objects.get()).token == "fresh"
