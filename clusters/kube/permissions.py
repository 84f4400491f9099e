"""Permissions that Setpoint needs in a cluster, and why: shown and checked when a cluster is connected.

`deploy/` grants exactly these; a test compares the two.
"""

from __future__ import annotations

from clusters.fleet import Permission
from contract import names

_NS = names.NAMESPACE

REQUIRED_PERMISSIONS: tuple[Permission, ...] = (
    Permission("get", "", "namespaces", why="identify the cluster by the UID of kube-system"),
    Permission("get", "", "nodes", why="read a node just before changing it"),
    Permission("list", "", "nodes", why="inventory"),
    Permission("watch", "", "nodes", why="follow the inventory"),
    Permission("patch", "", "nodes", why="cordon, uncordon, labels, annotations and taints"),
    Permission("get", "", "pods", why="find which budget blocks an eviction"),
    Permission("list", "", "pods", why="see what a drain would disturb"),
    Permission("watch", "", "pods", why="follow the pods that hold GPUs"),
    Permission("create", "", "pods/eviction", why="drain within PodDisruptionBudgets"),
    Permission("list", "policy", "poddisruptionbudgets", why="find what will block a drain, before it starts"),
    Permission("get", names.GROUP, names.PLURAL, why="read one node's tuning uncached"),
    Permission("list", names.GROUP, names.PLURAL, why="read what agents report"),
    Permission("watch", names.GROUP, names.PLURAL, why="learn at once when a node is done"),
    Permission("create", names.GROUP, names.PLURAL, why="one NodeTuning in mode observe for each node"),
    Permission("patch", names.GROUP, names.PLURAL, why="hand an approved step to the agent"),
    Permission("list", "coordination.k8s.io", "leases", _NS, why="see whether agents are alive"),
    *(
        Permission(verb, "resource.k8s.io", kind, why=f"{what} GPUs that claims are given (DRA)", is_optional=True)
        for kind in ("resourceslices", "resourceclaims")
        for verb, what in (("list", "count the"), ("watch", "follow the"))
    ),
    Permission("get", "", "configmaps", _NS, why="read which installation owns the cluster"),
    Permission("create", "", "configmaps", _NS, why="mark the cluster as this installation's"),
    Permission("patch", "", "configmaps", _NS, why="take the cluster over, when told to"),
    Permission("delete", "", "configmaps", _NS, why="remove the mark when disconnecting"),
    Permission("get", "apps", "daemonsets", _NS, why="see whether the agent is deployed"),
    Permission("get", "apiextensions.k8s.io", "customresourcedefinitions", why="see whether NodeTuning is installed"),
    Permission(
        "get",
        "admissionregistration.k8s.io",
        "validatingadmissionpolicies",
        why="see whether agents are confined to their own node",
    ),
    Permission(
        "get",
        "admissionregistration.k8s.io",
        "validatingadmissionpolicybindings",
        why="see whether the admission policies are in force",
    ),
    Permission(
        "create",
        "",
        "serviceaccounts/token",
        _NS,
        why="exchange its own token for the next one before it ends",
        name=names.CONTROLLER_SERVICE_ACCOUNT,
        is_optional=True,  # a cluster whose manifest is older must take a new credential all the same
    ),
)

CHECK_PERMISSIONS: tuple[Permission, ...] = (
    Permission("create", "", "pods", names.CHECKS_NAMESPACE, why="run a check on an idle node", is_optional=True),
    Permission("delete", "", "pods", names.CHECKS_NAMESPACE, why="remove a check that has ended", is_optional=True),
    Permission("get", "", "pods/log", names.CHECKS_NAMESPACE, why="read a check's result", is_optional=True),
)
"""What deploy/setpoint-checks.yaml grants besides. A cluster without it has no active checks."""
