"""The port through the API server's proxy: pods that speak HTTP, found by labels."""

from __future__ import annotations

import pytest

from clusters.fleet import Backend, FleetRefused, FleetUnavailable, Forbidden, NotFound, Untrusted

TEXT = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1"} 98\n'
LIMIT = 100_000


@pytest.fixture
def node(world):
    world.node(name := world.name("node"), gpus=1)
    return name


def backend(name: str, port: str = "9400") -> Backend:
    return Backend("pods", "default", name, port)


def test_pods_are_found_by_their_labels(world, node):
    label = world.name("exporter")
    world.pod(pod_name := world.name("pod"), node, labels={"app": label})
    world.pod(world.name("pod"), node, labels={"app": "other"})
    pods = world.fleet.labeled_pods(f"app={label}")
    assert [(pod["metadata"]["name"], pod["spec"]["nodeName"]) for pod in pods] == [(pod_name, node)]


@pytest.mark.parametrize("status", [200, 404, 500])
def test_what_a_backend_says_comes_as_it_is(world, node, status):
    port = world.serve(name := world.name("pod"), node, TEXT, status=status)
    reply = world.ruler().through(backend(name, port), "/metrics", limit=LIMIT)
    assert (reply.status, reply.body.decode()) == (status, TEXT)


def test_an_answer_longer_than_it_may_be_is_refused(world, node):
    port = world.serve(name := world.name("pod"), node, TEXT)
    with pytest.raises(Untrusted, match="longer"):
        world.ruler().through(backend(name, port), "metrics", limit=len(TEXT) - 1)


def test_a_backend_that_is_not_reached_may_be_later(world, node):
    world.serve(name := world.name("pod"), node, TEXT)
    with pytest.raises(FleetUnavailable, match="error trying to reach service"):
        world.ruler().through(backend(name, "9"), "metrics", limit=LIMIT)
    with pytest.raises(NotFound):
        world.ruler().through(backend("no-such-pod"), "metrics", limit=LIMIT)


@pytest.mark.parametrize("name", ["..", "a/b", "", "a?b"])
def test_no_name_or_port_leads_elsewhere(world, name):
    for to in (backend(name), backend("pod", name), Backend("services", name, "s", "80")):
        with pytest.raises(FleetRefused):
            world.fleet.through(to, "metrics", limit=LIMIT)


def test_who_may_not_is_told_so(world, node):
    world.pod(name := world.name("pod"), node)
    with pytest.raises(Forbidden, match="proxy"):
        world.stranger().through(backend(name), "metrics", limit=LIMIT)
