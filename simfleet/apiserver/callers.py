"""Callers of the simulated API server."""

from __future__ import annotations

from dataclasses import dataclass

from contract import names


@dataclass(frozen=True, slots=True)
class Caller:
    user: str
    manager: str
    """Field manager, when the call names none."""
    node: str = ""
    """Node name in the claims of a pod-bound token."""
    inside: bool = False
    """A part of the simulated cluster: not counted, and spared by faults."""


SETPOINT = Caller(names.CONTROLLER_USERNAME, names.FIELD_MANAGER)
CONTROLLERS = Caller("system:kube-controller-manager", "kube-controller-manager", inside=True)


def person(name: str) -> Caller:
    """Return a caller with kubectl and every right."""
    return Caller(name, "kubectl-edit", inside=True)


def kubelet(node: str) -> Caller:
    return Caller(f"system:node:{node}", "kubelet", node, inside=True)


def agent(node: str) -> Caller:
    return Caller(names.AGENT_USERNAME, "setpoint-agent", node, inside=True)
