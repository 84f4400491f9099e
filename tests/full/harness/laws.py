"""The judge: reads the API server's audit log and says which of the engine's laws was broken, by whom and when.

The log is written by the API server, so it is a witness that the control plane cannot talk over. What a rollout was
allowed to do comes from Setpoint's own API: its plan, its verdicts, its steps.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from clusters.kube.policy_objects import RESOURCES
from contract import names

TAKES_SLOT = ("kubelet-restart", "containerd-restart", "drain", "reboot")
MAY_WRITE = {
    ("nodes", ""): {"patch"},
    ("pods", "eviction"): {"create"},
    ("nodetunings", ""): {"create", "patch"},
    ("configmaps", ""): {"create", "patch", "delete"},
    ("selfsubjectaccessreviews", ""): {"create"},
}
WITH_COMPONENTS = {
    ("namespaces", ""): {"create"},
    ("secrets", ""): {"patch"},
    ("subjectaccessreviews", ""): {"create"},
}
"""Besides, where it installs components: the release's namespace, a record that a killed helm left pending, and the
question which rights helm has."""
POLICIES = frozenset(resource.plural for resource in RESOURCES.values())
"""Besides, where it carries out policy objects: they are applied and deleted, and no namespace is."""
AGENTS_MAY_WRITE = {("nodetunings", "status"): {"patch"}, ("leases", ""): {"create", "patch"}}
READS = ("get", "list", "watch")


@dataclass
class Rollout:
    """Limits of one rollout: what it may do."""

    name: str
    budget: int
    approved_at: datetime
    revision: str
    steps: dict[str, Mapping[str, Any]]
    has_components: bool
    has_policies: bool
    listed: frozenset[str]
    """Nodes that the plan showed as unavailable: they do not count against the budget (law 1)."""
    takes: int = 0
    """Fields of policy objects that the plan takes from others."""


@dataclass
class Judge:
    installation: str
    rollouts: dict[str, Rollout] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    peak: int = 0
    """Most nodes cordoned by Setpoint at one moment."""
    writes: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Successful writes by Setpoint, by `resource` or `resource/subresource`."""
    helm_writes: int = 0
    cordons: dict[str, str] = field(default_factory=dict)
    """By node: the holder of the cordon, `<installation>/<step>`, or a user's name."""
    _asked: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The spec that was last written for each node."""
    _marked: set[str] = field(default_factory=set)
    """Nodes with our annotation on them."""
    _grants: dict[tuple[str, int], str] = field(default_factory=dict)
    _specs: dict[tuple[str, int, bool], str] = field(default_factory=dict)
    _attempts: dict[str, int] = field(default_factory=dict)

    def expect(
        self,
        *,
        rollout: Mapping[str, Any],
        plan: Mapping[str, Any],
        nodes: Sequence[Mapping[str, Any]],
        steps: Sequence[Mapping[str, Any]],
    ) -> None:
        """All of it as the REST API answers."""
        verdicts = [v["at"] for v in plan["verdicts"] if v["verdict"] == "approve" and v["digest"] == plan["digest"]]
        needed = plan["approval"]["needed"]
        if len(verdicts) < needed:
            self.broken.append(f"{rollout['name']} was started with {len(verdicts)} of {needed} approvals")
            return
        self.rollouts[rollout["id"]] = Rollout(
            name=rollout["name"],
            budget=plan["summary"]["budget"],
            approved_at=_time(sorted(verdicts)[needed - 1]),
            revision=plan["revision"],
            steps={step["id"]: step for step in steps},
            has_components=any(step.get("kind") == "component" for step in steps),
            has_policies=any(step.get("kind") == "policies" for step in steps),
            takes=plan["summary"].get("takes", 0),
            listed=frozenset(n["name"] for n in nodes if n["is_unavailable"]),
        )

    def hear(self, events: Iterable[Mapping[str, Any]]) -> Judge:
        finished = [e for e in events if e.get("stage") == "ResponseComplete" and e.get("verb") not in READS]
        for event in sorted(finished, key=lambda e: str(e["stageTimestamp"])):
            self._hear(event)
        self._end()
        return self

    def must_hold(self) -> None:
        assert not self.broken, "\n".join(self.broken[:40])

    # ── one event ─────────────────────────────────────────────────────────────────────────────────────────────────
    def _hear(self, event: Mapping[str, Any]) -> None:
        what, user = event.get("objectRef") or {}, event["user"]["username"]
        place = (what.get("resource", ""), what.get("subresource", ""))
        succeeded = event.get("responseStatus", {}).get("code", 500) < 300
        if user == names.CONTROLLER_USERNAME and "dryRun=All" in str(event.get("requestURI")):
            return
        if user == names.CONTROLLER_USERNAME and str(event.get("userAgent")).lower().startswith("helm"):
            if succeeded:
                self._break(event, "helm wrote with the controller's identity")
        elif user == names.HELM_ISSUER_USERNAME:
            if place != ("serviceaccounts", "token"):
                self._break(event, f"{event['verb']} of {'/'.join(place)} is nothing that the issuer does")
        elif user == names.HELM_USERNAME:
            if succeeded and "dryRun=All" not in str(event.get("requestURI")):
                self._by_helm(event, place)
        elif user == names.CONTROLLER_USERNAME and event["verb"] in ("patch", "delete") and _is_policy(what, place):
            if succeeded:
                self._policy_write(event, place)
        elif user == names.CONTROLLER_USERNAME and place == ("serviceaccounts", "token"):
            if what.get("name") != names.CONTROLLER_SERVICE_ACCOUNT:  # its own, renewed at half of its life
                self._break(event, f"the controller made a token of {what.get('name')}")
        elif user == names.CONTROLLER_USERNAME:
            allowed = MAY_WRITE | (WITH_COMPONENTS if any(r.has_components for r in self.rollouts.values()) else {})
            if event["verb"] not in allowed.get(place, ()):
                self._break(event, f"{event['verb']} of {'/'.join(place)} is nothing that Setpoint does")
            elif succeeded:
                self.writes["/".join(filter(None, place))] += 1
                self._by_us(event, place)
        elif user == names.AGENT_USERNAME:
            if succeeded:
                self._by_agent(event, place)
        elif succeeded:
            self._by_others(event, place, user)

    def _by_helm(self, event: Mapping[str, Any], place: tuple[str, str]) -> None:
        """helm, with its own identity: only once something that it carries out is approved, and never to a node."""
        self.helm_writes += 1
        if place[0] in ("nodes", "nodetunings"):
            self._break(event, f"helm wrote {'/'.join(place)}, which no component may (law 9)")
        approved = [r.approved_at for r in self.rollouts.values() if r.has_components]
        if not approved or _time(event["requestReceivedTimestamp"]) < min(approved):
            self._break(event, "helm wrote before any component was approved (law 2)")

    def _policy_write(self, event: Mapping[str, Any], place: tuple[str, str]) -> None:
        """Check a policy object's write: approved, forced only if the plan says so, never a namespace's deletion."""
        self.writes["/".join(filter(None, place))] += 1
        approved = [r.approved_at for r in self.rollouts.values() if r.has_policies]
        if not approved or _time(event["requestReceivedTimestamp"]) < min(approved):
            self._break(event, f"{place[0]} were written before any policy object was approved (law 2)")
        if "force=true" in str(event.get("requestURI")):
            taking = [r.approved_at for r in self.rollouts.values() if r.takes]
            version = ((event.get("requestObject") or {}).get("metadata") or {}).get("resourceVersion")
            if not version or not taking or _time(event["requestReceivedTimestamp"]) < min(taking):
                self._break(event, f"{place[0]} were forced: a field was taken that no approved plan names (law 2)")
        if place[0] == "namespaces" and event["verb"] == "delete":
            self._break(event, "a namespace was deleted, and what is in it is not ours")

    def _by_us(self, event: Mapping[str, Any], place: tuple[str, str]) -> None:
        body = event.get("requestObject") or {}
        if place == ("nodes", ""):
            self._node_write(event, body)
        elif place == ("nodetunings", ""):
            self._spec_write(event, body.get("spec") or {})
        elif place == ("pods", "eviction") and not (body.get("deleteOptions") or {}).get("preconditions", {}).get(
            "uid"
        ):
            self._break(event, "an eviction that does not say which pod by its UID (law 9)")

    def _node_write(self, event: Mapping[str, Any], body: Mapping[str, Any]) -> None:
        node, meta = event["objectRef"]["name"], body.get("metadata") or {}
        if not meta.get("uid"):
            self._break(event, "a node was written without its UID (law 9)")
        marks = meta.get("annotations") or {}
        if "unschedulable" not in (body.get("spec") or {}):
            if names.CORDONED_BY in marks and marks[names.CORDONED_BY] is None:
                self._hand_over(event, node)
            return
        holder = self.cordons.get(node, "")
        if body["spec"]["unschedulable"]:
            self._cordon(event, node, str(marks.get(names.CORDONED_BY, "")), holder)
            return
        if node not in self._marked:
            self._break(event, f"uncordoned {node}, which it had not cordoned (law 5)")
        elif holder and not self._is_ours(holder):  # no one's: a person took the cordon off and left our mark
            self._break(event, f"uncordoned {node}, whose cordon is {holder}'s (law 5)")
        if not meta.get("resourceVersion"):
            self._break(event, f"uncordoned {node} without looking at the version it had (law 5)")
        self._marked.discard(node)
        self.cordons.pop(node, None)

    def _hand_over(self, event: Mapping[str, Any], node: str) -> None:
        """The mark is taken off and the cordon stays: a person asked to keep it, and it is theirs from now on."""
        if node not in self._marked:
            self._break(event, f"handed over the cordon of {node}, which it had not cordoned (law 5)")
        self._marked.discard(node)
        if node in self.cordons:
            self.cordons[node] = "a person"

    def _is_ours(self, holder: str) -> bool:
        return holder.startswith(f"{self.installation}/")

    def _cordon(self, event: Mapping[str, Any], node: str, owner: str, holder: str) -> None:
        rollout, step = self._step(owner.partition("/")[2])
        if not self._is_ours(owner) or step is None or rollout is None:
            self._break(event, f"cordoned {node} as {owner or 'nobody'}, which is no step that was approved (law 2)")
            return
        if step["node_name"] != node:
            self._break(event, f"cordoned {node} for a step of {step['node_name']} (law 9)")
        if holder and not self._is_ours(holder):
            self._break(event, f"took the cordon of {node} from {holder} (law 5)")
        if _time(event["requestReceivedTimestamp"]) < rollout.approved_at:
            self._break(event, f"cordoned {node} before {rollout.name} was approved (law 2)")
        self.cordons[node] = owner
        self._marked.add(node)
        ours = [n for n, who in self.cordons.items() if self._is_ours(who)]
        self.peak = max(self.peak, len(ours))
        out = [n for n in self.cordons if n not in rollout.listed or n in ours]
        if len(out) > rollout.budget:
            self._break(
                event, f"{len(out)} nodes out of service, the budget is {rollout.budget} (law 1): {sorted(out)}"
            )

    def _spec_write(self, event: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        node = event["objectRef"].get("name") or (event.get("requestObject") or {}).get("metadata", {}).get("name")
        before, self._asked[node] = self._asked.get(node), spec
        same = ("rollout", "step", "attempt", "settings", "restore", "nodeUID")
        is_no_more = spec.get("mode") in (before.get("mode"), "observe") if before else False
        if before and is_no_more and not spec.get("restart") and all(spec.get(n) == before.get(n) for n in same):
            return  # only a grant is taken back: nothing is asked that was not asked before
        if spec.get("mode", "observe") == "observe":
            # A step that ends leaves what it asked for to be read, in a mode in which no agent writes; a grant never.
            is_withdrawn = self._step(str(spec.get("step")))[1] is not None
            if spec.get("restart") or ((spec.get("settings") or spec.get("restore")) and not is_withdrawn):
                self._break(event, f"asks {node} for changes in mode observe (law 2)")
            return
        rollout, step = self._step(str(spec.get("step")))
        if rollout is None or step is None or rollout is not self.rollouts.get(str(spec.get("rollout"))):
            self._break(event, f"spec of {node} carries no approved rollout: {spec.get('rollout')} (law 2)")
            return
        if _time(event["requestReceivedTimestamp"]) < rollout.approved_at:
            self._break(event, f"spec of {node} was written before {rollout.name} was approved (law 2)")
        if step["node_name"] != node or spec.get("nodeUID") != step["node_uid"]:
            self._break(event, f"spec of {node} is for {step['node_name']} {spec.get('nodeUID')} (law 9)")
        if step["worst_class"] in TAKES_SLOT and node not in self.cordons:
            self._break(event, f"disturbs {node}, which nobody has cordoned (law 1)")
        self._once(event, str(node), step, spec)

    def _once(self, event: Mapping[str, Any], node: str, step: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        """An attempt asks for one thing, grants one restart, and is not gone back to (law 6)."""
        pk, attempt, grant = step["id"], int(spec.get("attempt") or 0), spec.get("restart")
        if attempt < self._attempts.get(pk, 0):
            self._break(event, f"went back to attempt {attempt} on {node} (law 6)")
        self._attempts[pk] = attempt
        canonical = json.dumps({k: v for k, v in spec.items() if k not in ("restart", "observe")}, sort_keys=True)
        if self._specs.setdefault((pk, attempt, bool(grant)), canonical) != canonical:
            self._break(event, f"asked {node} for something else within attempt {attempt} (law 6)")
        if grant:
            # Written again after a lost answer, the same permission ends later: it is one grant all the same.
            granted = json.dumps({k: v for k, v in grant.items() if k != "expires"}, sort_keys=True)
            if self._grants.setdefault((pk, attempt), granted) != granted:
                self._break(event, f"granted {node} two restarts within attempt {attempt} (law 6)")

    def _by_agent(self, event: Mapping[str, Any], place: tuple[str, str]) -> None:
        bound = (event["user"].get("extra") or {}).get("authentication.kubernetes.io/node-name", [""])[0]
        name = event["objectRef"].get("name") or (event.get("requestObject") or {}).get("metadata", {}).get("name")
        if event["verb"] not in AGENTS_MAY_WRITE.get(place, ()):
            self._break(event, f"an agent may not {event['verb']} {'/'.join(place)}")
        elif name and name != bound:  # a create names it in the body, which the log does not keep for Leases
            self._break(event, f"the agent of {bound or 'no node'} wrote {name}")

    def _by_others(self, event: Mapping[str, Any], place: tuple[str, str], user: str) -> None:
        node, body = str(event["objectRef"].get("name")), _merged(event.get("requestObject") or {})
        if place == ("nodetunings", "") and event["verb"] in ("create", "update", "patch") and "spec" in body:
            self._break(event, f"{user} wrote the spec of {node}")
        if place != ("nodes", ""):
            return
        if event["verb"] == "delete":
            self.cordons.pop(node, None)
            self._marked.discard(node)
        elif "unschedulable" in (spec := body.get("spec") or {}):
            if spec["unschedulable"]:
                self.cordons.setdefault(node, user)
            else:
                self.cordons.pop(node, None)

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────
    def _end(self) -> None:
        """Every cordon of ours is released, or its step says why not (laws 5 and 14)."""
        for node, owner in sorted(self.cordons.items()):
            if not self._is_ours(owner):
                continue
            _, step = self._step(owner.partition("/")[2])
            if step is None or step["status"] in ("queued", "skipped", "succeeded", "reverted"):
                self.broken.append(f"{node} is still cordoned, its step is {step and step['status']} (law 5)")
            elif step["status"] in ("failed", "held") and not step["is_disrupted"]:
                self.broken.append(
                    f"{node} is still cordoned, its step {step['status']} before any disruption (law 14)"
                )

    def _step(self, pk: str) -> tuple[Rollout | None, Mapping[str, Any] | None]:
        for rollout in self.rollouts.values():
            if pk in rollout.steps:
                return rollout, rollout.steps[pk]
        return None, None

    def _break(self, event: Mapping[str, Any], what: str) -> None:
        self.broken.append(
            f"{event['requestReceivedTimestamp']} {event['user']['username'].rpartition(':')[2]}: {what}"
        )


def _is_policy(what: Mapping[str, Any], place: tuple[str, str]) -> bool:
    """Setpoint marks a cluster as its own with a ConfigMap in its own namespace, which is no object of a profile."""
    return place[0] in POLICIES and (place[0], what.get("namespace")) != ("configmaps", names.NAMESPACE)


def _merged(body: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return a body as a merge patch; a JSON patch (RFC 6902), as Node Feature Discovery sends, is a list."""
    if isinstance(body, Mapping):
        return body
    out: dict[str, Any] = {}
    for change in body:
        *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in change["path"].split("/")[1:])
        inner = out
        for part in parents:
            inner = inner.setdefault(part, {})
        inner[last] = change.get("value")
    return out


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
