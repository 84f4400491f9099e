"""Changes of the kubelet's resource managers: what a node's kubelet would not start with, and what a change takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from contract import keys, resource_managers
from contract.keys import KeyKind
from contract.resource_managers import FLAGS, NodeFacts
from jobs.diffs.changes import Change, ChangeKind, Changes
from jobs.forecast.findings import PlanFinding, node_count


def manager_findings(
    changes: Mapping[str, Changes], observed: Mapping[str, Mapping[str, str]], kubelets: Mapping[str, str]
) -> list[PlanFinding]:
    """Judge, by node, what is changed, what its agent reports, and its kubelet's version.

    No approval makes right what no kubelet starts with, so that blocks; its agent would refuse it, too.
    """
    stopped: dict[tuple[str, str], list[str]] = defaultdict(list)
    changed: list[str] = []
    for name, of_node in changes.items():
        own = [change for change in of_node.settings() if keys.kind_of(change.key) is KeyKind.KUBELET_MANAGER]
        if not own:
            continue
        changed.append(name)
        seen = observed.get(name, {})
        key, why = resource_managers.unstartable(_given(own, seen), NodeFacts.of(seen, kubelets.get(name, "")))
        if why:
            stopped[key, why].append(name)
    out = [
        PlanFinding(
            "block",
            "kubelet-stopped",
            f"With {key} the kubelet would not start on {node_count(len(names))}",
            f"{why[0].upper()}{why[1:]}.",
            names,
        )
        for (key, why), names in sorted(stopped.items())
    ]
    if changed and not stopped:
        title = f"The kubelet's resource managers change on {node_count(len(changed))}"
        detail = (
            "Each node is drained, and its kubelet restarts once: its managers' state files are moved aside while it "
            "is down. A kubelet that does not come up with the change gets its configuration and state files back "
            "with the next start, which systemd makes, and the step fails."
        )
        out.append(PlanFinding("note", "kubelet-managers", title, detail, changed))
    return out


def _given(own: list[Change], observed: Mapping[str, str]) -> dict[str, str]:
    """Return what the kubelet is given after the change. A default that an agent reports counts as not given."""
    out = {key: observed[key] for key, (_, default) in FLAGS.items() if observed.get(key, default) != default}
    for change in own:
        is_default = change.kind == ChangeKind.RESTORE and change.value == FLAGS[change.key][1]
        out.pop(change.key, None)
        if change.value is not None and not is_default:
            out[change.key] = change.value
    return out
