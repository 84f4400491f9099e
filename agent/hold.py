"""The taint that keeps pods off a new node, removed by its agent when the time is up and Setpoint has not been there.

Setpoint removes it earlier, once the node is compliant. The agent may do so only where deploy/setpoint-holds.yaml is
applied, and the admission policy there lets it change nothing else of its Node. The time counts from when an agent of
this node first saw the taint, by the API server's clock, and outlives the agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.client import Client, RequestRefused, Unavailable
from agent.identity import Identity
from agent.journal import Store
from contract import clock, holds

LOOK_SECONDS = 60.0
REFUSED_SECONDS = 900.0
"""Until it asks again whether it may look at its Node: the right may be given later."""


class Hold:
    """One node's hold. `look` says when to look again."""

    def __init__(self, client: Client, identity: Identity, store: Store) -> None:
        self._client = client
        self._identity = identity
        self._store = store

    def look(self) -> tuple[float | None, str]:
        """Look once, and remove the taint where its time is up.

        Returns the seconds until the next look, None when there is nothing left to wait for, and what there is to log.
        A Node without the taint is not looked at again: kubelets bring it only when they register.
        """
        try:
            node, date = self._client.node(self._identity.node)
            return self._judge(node, date)
        except RequestRefused as error:
            if error.code == 403:
                return REFUSED_SECONDS, f"the hold of this node is Setpoint's alone: {error}"
            # Its taints were changed between look and write, or the token was not taken.
            return LOOK_SECONDS, f"cannot end this node's hold yet: {error}"
        except (Unavailable, OSError) as error:
            return LOOK_SECONDS, f"cannot look at this node's hold: {error}"

    def _judge(self, node: Mapping[str, Any], date: float | None) -> tuple[float | None, str]:
        metadata, spec = _mapping(node.get("metadata")), _mapping(node.get("spec"))
        taints = spec.get("taints") or []
        if metadata.get("uid") != self._identity.uid or not isinstance(taints, list):
            return None, ""  # another Node of this name has an agent of its own
        places = [i for i, taint in enumerate(taints) if isinstance(taint, dict) and holds.is_hold(taint)]
        if not places:
            self._remember(None)
            return None, ""
        minutes = holds.minutes_of(taints[places[0]].get("value"))
        since = self._since(date)
        if minutes is None or date is None or since is None or date < since + minutes * 60:
            return LOOK_SECONDS, ""
        self._client.untaint(self._identity.node, self._identity.uid, places[0], taints[places[0]])
        return LOOK_SECONDS, f"this node was held for {minutes} minutes, its limit: its taint is removed"

    def _since(self, date: float | None) -> float | None:
        """Return when the taint was first seen, which is now where nothing is stored of this Node."""
        uid, _, text = (self._store.load() or "").strip().partition(" ")
        stored = clock.parsed(text) if uid == self._identity.uid else None
        if stored is None and date is not None:
            self._remember(date)
        return date if stored is None else stored

    def _remember(self, date: float | None) -> None:
        text = "" if date is None else f"{self._identity.uid} {clock.stamp(date)}\n"
        if text != (self._store.load() or ""):
            self._store.save(text)


def _mapping(part: object) -> Mapping[str, Any]:
    return part if isinstance(part, dict) else {}
