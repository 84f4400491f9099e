"""Objects of any kind, over HTTP: what helm does to them, and what planning asks about them."""

from __future__ import annotations

import base64

import pytest

from tests.contract.objects import STRATEGIC

CORE = "/api/v1/namespaces/default"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def world(over_http):
    return over_http


def _map(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _template(app, *containers):
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": list(containers)}}


def _deployment(name, *containers, replicas=0):
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": _template(name, *containers)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def _definition(plural, kind, *, status=True):
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    version |= {"subresources": {"status": {}}} if status else {}
    group = "contract.setpoint.dev"
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [version]},
    }


def _established(world, name):
    def is_so():
        conditions = world.objects.get(f"{CRDS}/{name}")[1].get("status", {}).get("conditions") or ()
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    world.until(is_so)


def _posted(world, path, raw):
    """An object of a new kind: a real API server serves it only a moment after saying so."""

    def attempt():
        try:
            status, made = world.objects.post(path, raw)
        except ValueError:  # 404 page not found
            return None
        return made if status == 201 else None

    return world.until(attempt)


# ── dry run ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_dry_run_says_what_would_be_and_changes_nothing(world):
    objects, name = world.objects, world.name("dry")
    path = f"{CORE}/configmaps/{name}"
    status, made = objects.post(f"{CORE}/configmaps", _map(name, a="1"), dryRun="All")
    assert (status, made["data"], made["metadata"]["namespace"]) == (201, {"a": "1"}, "default")
    assert not objects.exists(path)
    status, made = objects.apply(path, _map(name, a="1"), "setpoint", dryRun="All")
    assert (status, made["data"]) == (201, {"a": "1"})
    assert not objects.exists(path)

    _, kept = objects.post(f"{CORE}/configmaps", _map(name, a="1", b="2"))
    status, changed = objects.apply(path, _map(name, a="9"), "setpoint", dryRun="All", force="true")
    assert (status, changed["data"]) == (200, {"a": "9", "b": "2"})
    assert objects.patch(path, {"data": {"b": None}}, dryRun="All")[1]["data"] == {"a": "1"}
    assert objects.put(path, _map(name, c="3"), dryRun="All")[1]["data"] == {"c": "3"}
    assert objects.delete(path, dry_run=True) == 200
    assert objects.get(path)[1] == kept
    assert objects.delete(path) == 200


def test_nothing_is_made_where_there_is_no_namespace_or_kind(world):
    status, body = world.objects.post("/api/v1/namespaces/nowhere/configmaps", _map("x"), dryRun="All")
    assert (status, body["message"]) == (404, 'namespaces "nowhere" not found')
    path = "/apis/contract.setpoint.dev/v1/gadgets"
    with pytest.raises(ValueError):  # "404 page not found" is not JSON
        world.objects.get(path)


# ── patches ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_strategic_patch_merges_containers_by_name_and_a_merge_patch_replaces_them(world):
    objects, name = world.objects, world.name("merged")
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    objects.post(DEPLOYMENTS, _deployment(name, {"name": "main", "image": "one", "env": env}))
    path = f"{DEPLOYMENTS}/{name}"

    def patched(containers, kind=STRATEGIC, **more):
        change = {"spec": {"template": {"spec": {"containers": containers, **more}}}}
        status, body = objects.patch(path, change, kind)
        assert status == 200, body
        return [
            (c["name"], c["image"], [e["name"] for e in c.get("env") or ()])
            for c in body["spec"]["template"]["spec"]["containers"]
        ]

    assert patched([{"name": "main", "image": "two"}]) == [("main", "two", ["A", "B"])]
    assert patched([{"name": "main", "env": [{"name": "A", "$patch": "delete"}]}]) == [("main", "two", ["B"])]
    order = {"$setElementOrder/containers": [{"name": "side"}, {"name": "main"}]}
    both = patched([{"name": "side", "image": "three"}], **order)
    assert both == [("side", "three", []), ("main", "two", ["B"])]
    assert patched([{"name": "main", "image": "four"}], "application/merge-patch+json") == [("main", "four", [])]
    objects.delete(path)


def test_secrets_are_stored_encoded(world):
    name = world.name("secret")
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"key": "word"}}
    status, made = world.objects.post(f"{CORE}/secrets", body)
    assert (status, made["type"]) == (201, "Opaque")
    assert made["data"] == {"key": base64.b64encode(b"word").decode()}
    assert "stringData" not in made
    world.objects.delete(f"{CORE}/secrets/{name}")


def test_a_service_has_an_address_from_the_start(world):
    name = world.name("service")
    spec = {"selector": {"app": name}, "ports": [{"port": 80}]}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
    status, made = world.objects.post(f"{CORE}/services", body)
    assert (status, made["spec"]["type"]) == (201, "ClusterIP")
    assert made["spec"]["clusterIP"].startswith("10.96.")
    world.objects.delete(f"{CORE}/services/{name}")


# ── server-side apply ─────────────────────────────────────────────────────────────────────────────────────────────────
def test_an_applied_field_is_its_managers_until_it_lets_go_or_another_forces(world):
    objects, name = world.objects, world.name("applied")
    path = f"{CORE}/configmaps/{name}"
    assert objects.apply(path, _map(name, a="1", b="2"), "one")[0] == 201
    status, body = objects.apply(path, _map(name, a="9"), "two")
    assert status == 409
    assert body["details"]["causes"][0]["reason"] == "FieldManagerConflict"
    assert body["details"]["causes"][0]["field"] == ".data.a"
    assert 'conflict with "one"' in body["message"]
    assert objects.apply(path, _map(name, a="1", c="3"), "two")[0] == 200  # the same value: shared
    assert objects.apply(path, _map(name, b="2"), "one")[1]["data"] == {"a": "1", "b": "2", "c": "3"}
    assert objects.apply(path, _map(name, b="8"), "two", force="true")[1]["data"] == {"b": "8"}
    assert objects.apply(path, _map(name), "one")[1]["data"] == {"b": "8"}
    [entry] = [e for e in objects.get(path)[1]["metadata"]["managedFields"] if e["manager"] == "two"]
    assert (entry["operation"], entry["fieldsV1"]) == ("Apply", {"f:data": {"f:b": {}}})
    objects.delete(path)


def test_who_edits_an_applied_field_owns_it(world):
    objects, name = world.objects, world.name("edited")
    path = f"{CORE}/configmaps/{name}"
    objects.apply(path, _map(name, a="1", b="2"), "one")
    objects.patch(path, {"data": {"a": "5"}}, fieldManager="alice")
    status, body = objects.apply(path, _map(name, a="1", b="2"), "one")
    assert status == 409
    assert 'conflict with "alice"' in body["message"]
    assert objects.apply(path, _map(name, a="1", b="2"), "one", force="true")[1]["data"]["a"] == "1"
    objects.delete(path)


def test_items_of_a_keyed_list_have_owners_of_their_own(world):
    objects, name = world.objects, world.name("keyed")
    path = f"{DEPLOYMENTS}/{name}"
    main = {"name": "main", "image": "one"}
    assert objects.apply(path, _deployment(name, main), "one")[0] == 201
    side = _deployment(name, {"name": "side", "image": "two"})
    assert objects.apply(path, side, "two")[0] == 200

    def containers():
        return [(c["name"], c["image"]) for c in objects.get(path)[1]["spec"]["template"]["spec"]["containers"]]

    assert sorted(containers()) == [("main", "one"), ("side", "two")]
    objects.apply(path, _deployment(name, main | {"image": "three"}), "one")
    assert sorted(containers()) == [("main", "three"), ("side", "two")]
    objects.apply(path, _deployment(name, {"name": "other", "image": "four"}), "one")
    assert sorted(containers()) == [("other", "four"), ("side", "two")]
    objects.delete(path)


# ── watching ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_watch_can_tell_first_what_is_there_and_that_this_was_all(world):
    objects, name = world.objects, world.name("watched")
    body = _map(name)
    body["metadata"]["labels"] = {"contract": name}
    objects.post(f"{CORE}/configmaps", body)
    how = {"labelSelector": f"contract={name}", "sendInitialEvents": "true", "allowWatchBookmarks": "true"}
    added, end, *_ = objects.watch(f"{CORE}/configmaps", resourceVersionMatch="NotOlderThan", **how)
    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", name)
    assert end["type"] == "BOOKMARK"
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    objects.delete(f"{CORE}/configmaps/{name}")


# ── deleting ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_dependants_follow_their_owner_as_the_policy_says(world, policy):
    objects, name = world.objects, world.name(policy.lower())
    objects.post(DEPLOYMENTS, _deployment(name, {"name": "main", "image": "one"}))
    path = f"{DEPLOYMENTS}/{name}"

    def replica_sets():
        items = objects.get("/apis/apps/v1/namespaces/default/replicasets")[1]["items"]
        return [r["metadata"] for r in items if (r["metadata"].get("labels") or {}).get("app") == name]

    world.until(replica_sets)
    assert objects.delete(path, policy) == 200
    world.until(lambda: not objects.exists(path))
    if policy != "Orphan":
        world.until(lambda: not replica_sets())
        return
    [left] = replica_sets()
    assert not left.get("ownerReferences")
    objects.delete(f"/apis/apps/v1/namespaces/default/replicasets/{left['name']}")


def test_an_object_with_a_finalizer_waits_for_it(world):
    objects, name = world.objects, world.name("held")
    path = f"{CORE}/configmaps/{name}"
    body = _map(name)
    body["metadata"]["finalizers"] = ["contract.setpoint.dev/hold"]
    objects.post(f"{CORE}/configmaps", body)
    assert objects.delete(path) == 200
    assert objects.get(path)[1]["metadata"]["deletionTimestamp"]
    objects.patch(path, {"metadata": {"finalizers": None}})
    world.until(lambda: not objects.exists(path))


def test_a_namespace_takes_its_content_along(world):
    objects, name = world.objects, world.name("home")
    path = f"/api/v1/namespaces/{name}"
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    made = objects.post("/api/v1/namespaces", body)[1]
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
    assert made["status"] == {"phase": "Active"}
    assert objects.post(f"{path}/configmaps", _map("inside"))[0] == 201
    assert objects.delete(path) == 200
    status, refusal = objects.post(f"{path}/configmaps", _map("late"))
    assert (status, "being terminated" in refusal["message"]) == (403, True)
    world.until(lambda: not objects.exists(path))
    assert not objects.exists(f"{path}/configmaps/inside")


# ── kinds that come and go ────────────────────────────────────────────────────────────────────────────────────────────
def test_a_defined_kind_is_served_discovered_and_gone_with_its_objects(world):
    objects = world.objects
    definition = _definition("widgets", "Widget")
    name, path = definition["metadata"]["name"], "/apis/contract.setpoint.dev/v1/widgets"
    assert objects.post(CRDS, definition)[0] == 201
    _established(world, name)
    widget = {"apiVersion": "contract.setpoint.dev/v1", "kind": "Widget", "metadata": {"name": "w"}}
    made = _posted(world, path, widget | {"spec": {"a": 1}, "status": {"b": 2}})
    assert (made["metadata"]["generation"], "status" in made) == (1, False)
    changed = objects.patch(f"{path}/w", {"spec": {"a": 2}, "status": {"b": 2}})[1]
    assert (changed["metadata"]["generation"], "status" in changed) == (2, False)
    reported = objects.patch(f"{path}/w/status", {"spec": {"a": 3}, "status": {"b": 2}})[1]
    assert (reported["spec"], reported["status"], reported["metadata"]["generation"]) == ({"a": 2}, {"b": 2}, 2)
    assert objects.patch(f"{path}/w", {"spec": {"a": 1}}, STRATEGIC)[0] == 415
    assert objects.delete(f"{CRDS}/{name}") == 200
    world.until(lambda: not objects.exists(f"{CRDS}/{name}"))


def test_a_kind_without_status_subresource_keeps_status_like_any_field(world):
    objects = world.objects
    definition = _definition("plains", "Plain", status=False)
    name, path = definition["metadata"]["name"], "/apis/contract.setpoint.dev/v1/plains"
    objects.post(CRDS, definition)
    _established(world, name)
    plain = {"apiVersion": "contract.setpoint.dev/v1", "kind": "Plain", "metadata": {"name": "p"}, "status": {"a": 1}}
    assert _posted(world, path, plain)["status"] == {"a": 1}
    assert objects.patch(f"{path}/p", {"status": {"a": 2}})[1]["status"] == {"a": 2}
    objects.delete(f"{CRDS}/{name}")
    world.until(lambda: not objects.exists(f"{CRDS}/{name}"))


# ── workloads ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_daemon_set_runs_where_its_selector_says(world):
    objects, name = world.objects, world.name("daemon")
    chosen, other = world.name("chosen"), world.name("other")
    world.node(chosen, labels={"contract": name})
    world.node(other)
    path = f"/apis/apps/v1/namespaces/default/daemonsets/{name}"
    template = _template(name, {"name": "main", "image": "one"})
    template["spec"] |= {"nodeSelector": {"contract": name}, "terminationGracePeriodSeconds": 1}
    body = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name}}
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template}
    objects.post(path.rpartition("/")[0], body | {"spec": spec})

    def is_everywhere(count):
        status = objects.get(path)[1].get("status") or {}
        numbers = {"desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled"}
        return all(status.get(n) == count for n in numbers)

    world.until(lambda: is_everywhere(1))
    world.edit("nodes", other, {"metadata": {"labels": {"contract": name}}})
    world.until(lambda: is_everywhere(2))
    objects.delete(path)
    world.until(lambda: not _pods(objects, name))


def test_a_stateful_set_comes_up_in_order_and_is_replaced_from_its_end(world):
    objects, name = world.objects, world.name("ordered")
    world.node(world.name("shelf"))
    path = f"/apis/apps/v1/namespaces/default/statefulsets/{name}"
    template = _template(name, {"name": "main", "image": "one"})
    template["spec"]["terminationGracePeriodSeconds"] = 1
    spec = {"replicas": 2, "serviceName": name, "selector": {"matchLabels": {"app": name}}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec}
    objects.post(path.rpartition("/")[0], body)

    def pods():
        return {p["metadata"]["name"]: p["spec"]["containers"][0]["image"] for p in _pods(objects, name)}

    def is_done(image):
        status = objects.get(path)[1].get("status") or {}
        numbers = {status.get(n) for n in ("replicas", "readyReplicas", "updatedReplicas")}
        return numbers == {2} and pods() == {f"{name}-0": image, f"{name}-1": image}

    world.until(lambda: is_done("one"))
    made = {p["metadata"]["name"]: p["metadata"]["creationTimestamp"] for p in _pods(objects, name)}
    assert made[f"{name}-0"] <= made[f"{name}-1"]
    change = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "two"}]}}}}
    objects.patch(path, change, STRATEGIC)
    world.until(lambda: is_done("two"))
    made = {p["metadata"]["name"]: p["metadata"]["creationTimestamp"] for p in _pods(objects, name)}
    assert made[f"{name}-1"] <= made[f"{name}-0"], "the state between is too short to be seen for certain"
    objects.patch(path, {"spec": {"replicas": 1}})
    world.until(lambda: list(pods()) == [f"{name}-0"])
    objects.delete(path)
    world.until(lambda: not pods())


def test_a_job_runs_once_and_says_so(world):
    objects, name = world.objects, world.name("once")
    world.node(world.name("worker"))
    path = f"/apis/batch/v1/namespaces/default/jobs/{name}"
    template = _template(name, {"name": "main", "image": "one"})
    template["spec"]["restartPolicy"] = "Never"
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}
    objects.post(path.rpartition("/")[0], body)

    def conditions():
        reported = objects.get(path)[1].get("status", {}).get("conditions") or ()
        return {c["type"] for c in reported if c["status"] == "True"}

    world.until(lambda: "Complete" in conditions())
    assert objects.get(path)[1]["status"]["succeeded"] == 1
    objects.delete(path)
    world.until(lambda: not _pods(objects, name))


def test_a_deployment_replaces_its_pods_when_its_template_changes(world):
    objects, name = world.objects, world.name("rolled")
    world.node(world.name("home"))
    path = f"{DEPLOYMENTS}/{name}"
    objects.post(DEPLOYMENTS, _deployment(name, {"name": "main", "image": "one"}, replicas=2))

    def is_done(image):
        status = objects.get(path)[1].get("status") or {}
        images = [p["spec"]["containers"][0]["image"] for p in _pods(objects, name)]
        numbers = {status.get(n) for n in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")}
        return numbers == {2} and images == [image] * 2

    world.until(lambda: is_done("one"))
    change = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "two"}]}}}}
    objects.patch(path, change, STRATEGIC)
    world.until(lambda: is_done("two"))
    objects.delete(path)
    world.until(lambda: not _pods(objects, name))


def _pods(objects, app):
    items = objects.get(f"{CORE}/pods")[1]["items"]
    return [p for p in items if (p["metadata"].get("labels") or {}).get("app") == app]
