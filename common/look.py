"""Appearance of statuses: word, icon and color class for every value of every axis, in one place.

Standard library only: `tools/vendor.py` reads ICONS before anything is installed, to cut the icon sprite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Look(NamedTuple):
    word: str
    icon: str
    css: str
    """ok, warn, bad, run, pause, unk or neu: the class that colors `.st`, and `.f-<css>` in a bar."""


UNKNOWN = Look("Unknown", "help-circle", "unk")

# Within an axis the worst value comes first: a roll-up names the first one that occurs.
COMPLIANCE: Mapping[str, Look] = {
    "drifted": Look("Drifted", "arrows-diff", "warn"),
    "unknown": UNKNOWN,
    "pending": Look("Pending", "clock-hour-4", "run"),
    "compliant": Look("Compliant", "circle-check", "ok"),
    "unassigned": Look("Not assigned", "minus", "nil"),
}
COMPONENT: Mapping[str, Look] = {
    "missing": Look("Missing", "circle-x", "bad"),
    "foreign": Look("Changed by another party", "user", "warn"),
    "drifted": Look("Drifted", "arrows-diff", "warn"),
    "not-ready": Look("Not ready", "alert-triangle", "warn"),
    "unknown": UNKNOWN,
    "pending": Look("Pending", "clock-hour-4", "run"),
    "compliant": Look("Compliant", "circle-check", "ok"),
}
HEALTH: Mapping[str, Look] = {
    "unreachable": Look("Unreachable", "plug-connected-x", "bad"),
    "degraded": Look("Degraded", "alert-triangle", "warn"),
    "unknown": UNKNOWN,
    "progressing": Look("Progressing", "progress", "run"),
    "healthy": Look("Healthy", "activity-heartbeat", "ok"),
}
REACH: Mapping[str, Look] = {
    "unreachable": Look("Unreachable", "plug-connected-x", "bad"),
    "never": Look("Not seen yet", "help-circle", "unk"),
    "reachable": Look("Reachable", "activity-heartbeat", "ok"),
}
OPERATION: Mapping[str, Look] = {
    "failed": Look("Failed", "circle-x", "bad"),
    "stopped": Look("Stopped at failures", "hand-stop", "bad"),
    "held": Look("Held", "hand-stop", "warn"),
    "waiting": Look("Waiting", "hourglass", "warn"),
    "aborting": Look("Aborting", "player-stop", "warn"),
    "reverting": Look("Reverting", "arrow-back-up", "run"),
    "paused": Look("Paused", "player-pause", "pause"),
    "running": Look("Running", "player-play", "run"),
    "queued": Look("Queued", "clock", "neu"),
    "succeeded": Look("Succeeded", "checks", "ok"),
    "reverted": Look("Reverted", "arrow-back-up", "neu"),
    "cancelled": Look("Cancelled", "ban", "neu"),
    "skipped": Look("Skipped", "player-skip-forward", "neu"),
    "none": Look("None", "minus", "nil"),
}
STEP: Mapping[str, Look] = {
    **{name: OPERATION[name] for name in ("failed", "held", "queued", "succeeded", "reverted", "skipped")},
    **{
        name: Look(name.capitalize(), "progress", "run")
        for name in (
            "admitted",
            "cordoning",
            "draining",
            "applying",
            "restarting",
            "verifying",
            "returning",
            "soaking",
        )
    },
}
PLAN: Mapping[str, Look] = {
    "draft": Look("Draft", "file-diff", "neu"),
    "review": Look("Needs review", "eye-check", "run"),
    "changes": Look("Changes requested", "arrow-back-up", "warn"),
    "approved": Look("Approved", "check", "ok"),
    "started": Look("Started", "player-play", "run"),
    "rejected": Look("Rejected", "circle-x", "bad"),
    "withdrawn": Look("Withdrawn", "arrow-back-up", "neu"),
    "expired": Look("Expired", "clock", "neu"),
}
SEVERITY: Mapping[str, Look] = {
    "block": Look("Block", "circle-x", "bad"),
    "critical": Look("Critical", "circle-x", "bad"),
    "warn": Look("Warning", "alert-triangle", "warn"),
    "warning": Look("Warning", "alert-triangle", "warn"),
    "note": Look("Note", "info-circle", "unk"),
    "info": Look("Note", "info-circle", "unk"),
}
EVENT: Mapping[str, Look] = {
    "bad": Look("Failed", "circle-x", "bad"),
    "warn": Look("Attention", "alert-triangle", "warn"),
    "info": Look("Note", "point", "neu"),
}
CHECK: Mapping[str, Look] = {
    "fail": Look("Missing", "circle-x", "bad"),
    "warn": Look("Attention", "alert-triangle", "warn"),
    "unknown": UNKNOWN,
    "ok": Look("Yes", "circle-check", "ok"),
}
MESSAGE: Mapping[str, Look] = {
    "error": Look("Not done", "circle-x", "bad"),
    "warning": Look("Attention", "alert-triangle", "warn"),
    "success": Look("Done", "circle-check", "ok"),
    "info": Look("Note", "info-circle", "unk"),
    "debug": Look("Note", "info-circle", "unk"),
}
EDIT: Mapping[str, Look] = {
    "cluster": Look("Cluster", "topology-star-3", "neu"),
    "node": Look("Node", "server", "neu"),
    "nodes": Look("Nodes", "server", "neu"),
    "pool": Look("Pool", "box", "neu"),
    "assignment": Look("Target", "eye-check", "neu"),
    "profile": Look("Profile", "adjustments-horizontal", "neu"),
    "plan": Look("Plan", "file-diff", "neu"),
    "freeze": Look("Freeze", "snowflake", "neu"),
}
"""An edit in a timeline, by what was edited."""
GPU: Mapping[str, Look] = {
    "none": Look("No data", "help-circle", "none"),
    "out": Look("Out of service", "ban", "unk"),
    "free": Look("Free", "minus", "free"),
    "held": Look("Held idle", "zzz", "held"),
    "low": Look("Low", "arrow-down", "low"),
    "effective": Look("Effective", "activity", "eff"),
}
XID: Mapping[str, Look] = {
    "bad": Look("Act", "alert-triangle", "bad"),
    "warn": Look("Watch", "alert-triangle", "warn"),
    "ok": Look("Application", "info-circle", "unk"),
}
EFFECT: Mapping[str, Look] = {
    "rose-bad": Look("Rose", "arrow-up", "bad"),
    "fell-bad": Look("Fell", "arrow-down", "bad"),
    "rose-good": Look("Rose", "arrow-up", "ok"),
    "fell-good": Look("Fell", "arrow-down", "ok"),
    "rose": Look("Rose", "arrow-up", "neu"),
    "fell": Look("Fell", "arrow-down", "neu"),
    "inconclusive": Look("Inconclusive", "minus", "unk"),
    "no interval": Look("No interval", "help-circle", "unk"),
    "no data": Look("No data", "help-circle", "unk"),
}
"""What a rollout did to one measure; good and bad are the measure's to say."""
PACE: Mapping[str, Look] = {
    "slower": Look("Slower", "arrow-down", "warn"),
    "few": Look("Not compared", "help-circle", "unk"),
    "level": Look("Not slower", "circle-check", "ok"),
}
"""How a node keeps pace with nodes that do the same work."""
ALERT: Mapping[str, Look] = {
    "open": Look("Open", "bell", "bad"),
    "closed": Look("Closed", "check", "ok"),
}
DELIVERY: Mapping[str, Look] = {
    "given-up": Look("Given up", "circle-x", "bad"),
    "waiting": Look("Waiting", "hourglass", "warn"),
    "sent": Look("Sent", "checks", "ok"),
}
AXES: Mapping[str, Mapping[str, Look]] = {
    "compliance": COMPLIANCE,
    "component": COMPONENT,
    "health": HEALTH,
    "reach": REACH,
    "operation": OPERATION,
    "step": STEP,
    "plan": PLAN,
    "severity": SEVERITY,
    "event": EVENT,
    "check": CHECK,
    "message": MESSAGE,
    "edit": EDIT,
    "gpu": GPU,
    "xid": XID,
    "effect": EFFECT,
    "pace": PACE,
    "alert": ALERT,
    "delivery": DELIVERY,
}

APPLY_CLASSES: Mapping[str, Look] = {
    "reboot": Look("Reboot", "power", "reboot"),
    "drain": Look("Drain", "refresh", "drain"),
    "gpu-pods": Look("GPU pods stop", "refresh", "drain"),
    "containerd-restart": Look("containerd restart", "refresh", "drain"),
    "network": Look("Network agents", "refresh", "drain"),
    "kubelet-restart": Look("Kubelet restart", "refresh", "drain"),
    "new-pods": Look("New pods", "box", ""),
    "live": Look("Live", "bolt", ""),
    "unknown": Look("Effect unknown", "help-circle", "reboot"),
}
WHAT_HAPPENS: Mapping[str, str] = {
    "reboot": "cordon, drain, apply, reboot, verify",
    "drain": "cordon, drain, apply, verify",
    "containerd-restart": "cordon, drain, apply, restart containerd",
    "gpu-pods": "pods that hold GPUs stop; the others stay",
    "network": "network agents restart node by node",
    "kubelet-restart": "cordon, apply, restart the kubelet, verify; pods stay",
    "new-pods": "live for the host; pods see it when they are recreated",
    "live": "no disturbance",
}
STAGE_CELLS: Mapping[str, str] = {"done": "done", "running": "now", "waiting": "hold", "held": "hold", "failed": "fail"}
"""State of a step's stage: the class of its cell in the stage matrix."""
THEMES: Mapping[str, Look] = {
    "": Look("follows the system", "device-desktop", "light"),
    "light": Look("light", "sun", "dark"),
    "dark": Look("dark", "moon", ""),
}
"""By the person's choice; `css` is the choice that the switch offers next."""

ICONS = frozenset(look.icon for table in (*AXES.values(), APPLY_CLASSES, THEMES) for look in table.values())


def look(axis: str, value: object) -> Look:
    """A value newer than this table shows as its own word, in gray: nothing is hidden by absence."""
    name = str(value or "")
    return AXES[axis].get(name) or Look(name.replace("-", " ").capitalize() or "Unknown", "help-circle", "unk")


def sign(operator: str) -> str:
    """A setting's operator as people read it; documents and the API keep `>=`."""
    return {">=": "≥", "<=": "≤"}.get(operator, operator)
