"""kube-proxy as kubeadm installs it, for tests on any API server."""

from __future__ import annotations

from typing import Any

from clusters.kube.apiserver import ApiServer, Call

SPACE = "kube-system"
DAEMONSETS = f"/apis/apps/v1/namespaces/{SPACE}/daemonsets"
CONFIGS = f"/api/v1/namespaces/{SPACE}/configmaps"
PLACES = {"daemonsets": DAEMONSETS, "configmaps": CONFIGS}
LABELS = {"k8s-app": "kube-proxy"}


def daemonset(**meta: Any) -> dict[str, Any]:
    volume = {"name": "kube-proxy", "configMap": {"name": "kube-proxy", "defaultMode": 420}}
    container = {
        "name": "kube-proxy",
        "image": "registry.k8s.io/kube-proxy:v1.35.4",
        "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/local/bin/kube-proxy", "--config=/var/lib/kube-proxy/config.conf"],
        "securityContext": {"privileged": True},
        "volumeMounts": [{"mountPath": "/var/lib/kube-proxy", "name": "kube-proxy"}],
    }
    pod = {
        "priorityClassName": "system-node-critical",
        "hostNetwork": True,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [volume],
    }
    spec = {
        "revisionHistoryLimit": 10,
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": pod},
        "updateStrategy": {"type": "RollingUpdate"},
    }
    metadata = {"name": "kube-proxy", "namespace": SPACE, "labels": LABELS, **meta}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def config(text: str = "mode: iptables\n") -> dict[str, Any]:
    metadata = {"name": "kube-proxy", "namespace": SPACE, "labels": {"app": "kube-proxy"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.conf": text}}


def install(server: ApiServer, *bodies: dict[str, Any]) -> None:
    for body in bodies or (config(), daemonset()):
        plural = f"{body['kind'].lower()}s"
        server.ask(Call("create", plural, "kube-proxy"), "POST", PLACES[plural], body=body)


def there(server: ApiServer, plural: str) -> dict[str, Any] | None:
    answer = server.send(Call("get", plural, "kube-proxy"), "GET", f"{PLACES[plural]}/kube-proxy")
    return answer.object() if answer.status == 200 else None


def meaning(raw: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what a person would compare: labels, and all that the API server and its controllers do not keep."""
    if raw is None:
        return None
    named = {key: value for key, value in raw.items() if key not in ("metadata", "status")}
    return {**named, "labels": raw["metadata"].get("labels"), "name": raw["metadata"]["name"]}


def change(server: ApiServer, plural: str, patch: dict[str, Any]) -> None:
    how: dict[str, Any] = {"body": patch, "content_type": "application/merge-patch+json"}
    server.ask(Call("patch", plural, "kube-proxy"), "PATCH", f"{PLACES[plural]}/kube-proxy", **how)


def remove(server: ApiServer, plural: str) -> None:
    server.ask(Call("delete", plural, "kube-proxy"), "DELETE", f"{PLACES[plural]}/kube-proxy")


def replace(server: ApiServer, body: dict[str, Any]) -> None:
    """The same again, as another object."""
    remove(server, f"{body['kind'].lower()}s")
    install(server, body)
