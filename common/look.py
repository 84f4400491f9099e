"""Appearance of statuses: word, icon and color class for every value of every axis, in one place.

Standard library only: `tools/vendor.py` reads ICONS before anything is installed, to cut the icon sprite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Appearance(NamedTuple):
    word: str
    icon: str
    css: str
    """ok, warn, bad, run, pause, unk or neu: the class that colors `.st`, and `.f-<css>` in a bar."""


UNKNOWN = Appearance("Unknown", "help-circle", "unk")

# Within an axis the worst value comes first: a roll-up names the first one that occurs.
COMPLIANCE: Mapping[str, Appearance] = {
    "drifted": Appearance("Drifted", "arrows-diff", "warn"),
    "unknown": UNKNOWN,
    "pending": Appearance("Pending", "clock-hour-4", "run"),
    "compliant": Appearance("Compliant", "circle-check", "ok"),
    "unassigned": Appearance("Not assigned", "minus", "nil"),
}
COMPONENT: Mapping[str, Appearance] = {
    "missing": Appearance("Missing", "circle-x", "bad"),
    "foreign": Appearance("Changed by another party", "user", "warn"),
    "drifted": Appearance("Drifted", "arrows-diff", "warn"),
    "not-ready": Appearance("Not ready", "alert-triangle", "warn"),
    "unknown": UNKNOWN,
    "pending": Appearance("Pending", "clock-hour-4", "run"),
    "compliant": Appearance("Compliant", "circle-check", "ok"),
}
HEALTH: Mapping[str, Appearance] = {
    "unreachable": Appearance("Unreachable", "plug-connected-x", "bad"),
    "degraded": Appearance("Degraded", "alert-triangle", "warn"),
    "unknown": UNKNOWN,
    "progressing": Appearance("Progressing", "progress", "run"),
    "healthy": Appearance("Healthy", "activity-heartbeat", "ok"),
}
REACH: Mapping[str, Appearance] = {
    "unreachable": Appearance("Unreachable", "plug-connected-x", "bad"),
    "never": Appearance("Not seen yet", "help-circle", "unk"),
    "reachable": Appearance("Reachable", "activity-heartbeat", "ok"),
}
OPERATION: Mapping[str, Appearance] = {
    "failed": Appearance("Failed", "circle-x", "bad"),
    "stopped": Appearance("Stopped at failures", "hand-stop", "bad"),
    "held": Appearance("Held", "hand-stop", "warn"),
    "waiting": Appearance("Waiting", "hourglass", "warn"),
    "aborting": Appearance("Aborting", "player-stop", "warn"),
    "reverting": Appearance("Reverting", "arrow-back-up", "run"),
    "paused": Appearance("Paused", "player-pause", "pause"),
    "running": Appearance("Running", "player-play", "run"),
    "queued": Appearance("Queued", "clock", "neu"),
    "succeeded": Appearance("Succeeded", "checks", "ok"),
    "reverted": Appearance("Reverted", "arrow-back-up", "neu"),
    "cancelled": Appearance("Cancelled", "ban", "neu"),
    "skipped": Appearance("Skipped", "player-skip-forward", "neu"),
    "none": Appearance("None", "minus", "nil"),
}
FLEET: Mapping[str, Appearance] = {
    "failed": OPERATION["failed"],
    "held": OPERATION["held"],
    "waiting": OPERATION["waiting"],
    "soaking": Appearance("Soaking", "hourglass", "run"),
    "open": Appearance("Open", "player-play", "run"),
    "running": OPERATION["running"],
    "draft": Appearance("Not started", "clock", "neu"),
    "finished": Appearance("Finished", "checks", "ok"),
    "succeeded": OPERATION["succeeded"],
    "cancelled": OPERATION["cancelled"],
}
"""Of a fleet run, and of its rings."""
STEP: Mapping[str, Appearance] = {
    **{name: OPERATION[name] for name in ("failed", "held", "queued", "succeeded", "reverted", "skipped")},
    **{
        name: Appearance(name.capitalize(), "progress", "run")
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
PLAN: Mapping[str, Appearance] = {
    "draft": Appearance("Draft", "file-diff", "neu"),
    "review": Appearance("Needs review", "eye-check", "run"),
    "changes": Appearance("Changes requested", "arrow-back-up", "warn"),
    "approved": Appearance("Approved", "check", "ok"),
    "started": Appearance("Started", "player-play", "run"),
    "rejected": Appearance("Rejected", "circle-x", "bad"),
    "withdrawn": Appearance("Withdrawn", "arrow-back-up", "neu"),
    "expired": Appearance("Expired", "clock", "neu"),
}
SEVERITY: Mapping[str, Appearance] = {
    "block": Appearance("Block", "circle-x", "bad"),
    "critical": Appearance("Critical", "circle-x", "bad"),
    "warn": Appearance("Warning", "alert-triangle", "warn"),
    "warning": Appearance("Warning", "alert-triangle", "warn"),
    "note": Appearance("Note", "info-circle", "unk"),
    "info": Appearance("Note", "info-circle", "unk"),
}
EVENT: Mapping[str, Appearance] = {
    "bad": Appearance("Failed", "circle-x", "bad"),
    "warn": Appearance("Attention", "alert-triangle", "warn"),
    "info": Appearance("Note", "point", "neu"),
}
CHECK: Mapping[str, Appearance] = {
    "fail": Appearance("Missing", "circle-x", "bad"),
    "warn": Appearance("Attention", "alert-triangle", "warn"),
    "unknown": UNKNOWN,
    "ok": Appearance("Yes", "circle-check", "ok"),
}
PREFLIGHT: Mapping[str, Appearance] = {
    "bad": Appearance("Missing", "circle-x", "bad"),
    "warn": Appearance("Attention", "alert-triangle", "warn"),
    "unknown": UNKNOWN,
    "ok": Appearance("Good", "circle-check", "ok"),
}
"""One check of a cluster that is to be connected."""
PROBE: Mapping[str, Appearance] = {
    "failed": Appearance("Not read", "plug-connected-x", "bad"),
    "empty": Appearance("No GPUs found", "alert-triangle", "warn"),
    "partly": Appearance("Read in part", "alert-triangle", "warn"),
    "well": Appearance("Read", "circle-check", "ok"),
}
"""A test reading of GPU telemetry."""
MESSAGE: Mapping[str, Appearance] = {
    "error": Appearance("Not done", "circle-x", "bad"),
    "warning": Appearance("Attention", "alert-triangle", "warn"),
    "success": Appearance("Done", "circle-check", "ok"),
    "info": Appearance("Note", "info-circle", "unk"),
    "debug": Appearance("Note", "info-circle", "unk"),
}
EDIT: Mapping[str, Appearance] = {
    "cluster": Appearance("Cluster", "topology-star-3", "neu"),
    "node": Appearance("Node", "server", "neu"),
    "nodes": Appearance("Nodes", "server", "neu"),
    "pool": Appearance("Pool", "box", "neu"),
    "assignment": Appearance("Target", "eye-check", "neu"),
    "profile": Appearance("Profile", "adjustments-horizontal", "neu"),
    "plan": Appearance("Plan", "file-diff", "neu"),
    "freeze": Appearance("Freeze", "snowflake", "neu"),
}
"""An edit in a timeline, by what was edited."""
GPU: Mapping[str, Appearance] = {
    "none": Appearance("No data", "help-circle", "none"),
    "out": Appearance("Out of service", "ban", "unk"),
    "free": Appearance("Free", "minus", "free"),
    "held": Appearance("Held idle", "zzz", "held"),
    "low": Appearance("Low", "arrow-down", "low"),
    "effective": Appearance("Effective", "activity", "eff"),
}
XID: Mapping[str, Appearance] = {
    "bad": Appearance("Act", "alert-triangle", "bad"),
    "warn": Appearance("Watch", "alert-triangle", "warn"),
    "ok": Appearance("Application", "info-circle", "unk"),
}
EFFECT: Mapping[str, Appearance] = {
    "rose-bad": Appearance("Rose", "arrow-up", "bad"),
    "fell-bad": Appearance("Fell", "arrow-down", "bad"),
    "rose-good": Appearance("Rose", "arrow-up", "ok"),
    "fell-good": Appearance("Fell", "arrow-down", "ok"),
    "rose": Appearance("Rose", "arrow-up", "neu"),
    "fell": Appearance("Fell", "arrow-down", "neu"),
    "higher": Appearance("Higher", "arrow-up", "neu"),
    "lower": Appearance("Lower", "arrow-down", "neu"),
    "no change": Appearance("No change", "minus", "unk"),
    "inconclusive": Appearance("Inconclusive", "minus", "unk"),
    "no interval": Appearance("No interval", "help-circle", "unk"),
    "no data": Appearance("No data", "help-circle", "unk"),
}
"""What a rollout did to one measure; good and bad are the measure's to say."""
PACE: Mapping[str, Appearance] = {
    "slower": Appearance("Slower", "arrow-down", "warn"),
    "few": Appearance("Not compared", "help-circle", "unk"),
    "level": Appearance("Not slower", "circle-check", "ok"),
}
"""How a node keeps pace with nodes that do the same work."""
ALERT: Mapping[str, Appearance] = {
    "open": Appearance("Open", "bell", "bad"),
    "closed": Appearance("Closed", "check", "ok"),
}
POLICY: Mapping[str, Appearance] = {
    "active": Appearance("Active", "circle-check", "ok"),
    "proposed": Appearance("Proposed", "eye-check", "run"),
    "retired": Appearance("Retired", "history", "neu"),
    "closed": Appearance("Closed", "ban", "neu"),
}
DELIVERY: Mapping[str, Appearance] = {
    "given-up": Appearance("Given up", "circle-x", "bad"),
    "waiting": Appearance("Waiting", "hourglass", "warn"),
    "sent": Appearance("Sent", "checks", "ok"),
    "over": Appearance("Over before it was due", "circle-dashed", "neu"),
}
STAGE: Mapping[str, Appearance] = {
    "failed": Appearance("Failed", "circle-x", "fail"),
    "held": Appearance("Held", "hand-stop", "hold"),
    "waiting": Appearance("Waiting", "hourglass", "hold"),
    "running": Appearance("Running", "progress", "now"),
    "done": Appearance("Done", "check", "done"),
}
"""State of a step's stage; `css` is the class of its cell in the stage matrix."""
VERDICT: Mapping[str, Appearance] = {
    "reject": Appearance("Rejected", "circle-x", "bad"),
    "changes": Appearance("Requested changes", "arrow-back-up", "warn"),
    "retract": Appearance("Withdrew the approval", "arrow-back-up", "neu"),
    "approve": Appearance("Approved", "check", "ok"),
}
GLASS: Mapping[str, Appearance] = {
    "overdue": Appearance("Review overdue", "alert-triangle", "bad"),
    "open": Appearance("Review open", "clock", "warn"),
    "broken": Appearance("Break-glass", "alert-triangle", "warn"),
    "reviewed": Appearance("Reviewed", "checks", "ok"),
}
GLASS_VERDICT: Mapping[str, Appearance] = {
    "not-ok": Appearance("Not justified", "circle-x", "bad"),
    "ok": Appearance("Justified", "check", "ok"),
}
VERB: Mapping[str, Appearance] = {
    "pause": Appearance("Pause", "player-pause", ""),
    "resume": Appearance("Resume", "player-play", ""),
    "go-on": Appearance("Continue now", "player-play", ""),
    "abort": Appearance("Abort", "player-stop", ""),
    "retry-failed": Appearance("Retry failed", "refresh", ""),
    "skip": Appearance("Skip a node", "player-skip-forward", ""),
    "revert": Appearance("Revert all", "arrow-back-up", ""),
}
"""What may be done with a rollout, as its button says it."""
STEP_VERB: Mapping[str, Appearance] = {
    "retry-failed": Appearance("Retry", "refresh", ""),
    "skip": Appearance("Skip", "player-skip-forward", ""),
    "revert": Appearance("Revert", "arrow-back-up", ""),
    "keep-cordoned": Appearance("Keep cordoned", "lock", ""),
}
"""The same of one of its steps."""
JOB: Mapping[str, Appearance] = {
    "failed": Appearance("Failed", "circle-x", "bad"),
    "starting": Appearance("Partly running", "progress", "warn"),
    "queued": Appearance("Queued", "clock", "neu"),
    "running": Appearance("Running", "player-play", "run"),
    "ended": Appearance("Ended", "minus", "nil"),
    "deleted": Appearance("Deleted", "minus", "nil"),
    "succeeded": Appearance("Succeeded", "checks", "ok"),
}
"""A job that holds or held GPUs."""
CHECK_RUN: Mapping[str, Appearance] = {
    "failed": Appearance("Failed", "circle-x", "bad"),
    "unknown": Appearance("No result", "help-circle", "warn"),
    "not-run": Appearance("Not run", "minus", "nil"),
    "waiting": Appearance("Waiting", "hourglass", "neu"),
    "starting": Appearance("Starting", "progress", "run"),
    "running": Appearance("Running", "player-play", "run"),
    "ending": Appearance("Ending", "progress", "run"),
    "passed": Appearance("Passed", "circle-check", "ok"),
}
"""An active check of a node: what came of it, or what it does now."""
AXES: Mapping[str, Mapping[str, Appearance]] = {
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
    "check-run": CHECK_RUN,
    "preflight": PREFLIGHT,
    "probe": PROBE,
    "message": MESSAGE,
    "edit": EDIT,
    "gpu": GPU,
    "job": JOB,
    "xid": XID,
    "effect": EFFECT,
    "fleet": FLEET,
    "pace": PACE,
    "alert": ALERT,
    "policy": POLICY,
    "delivery": DELIVERY,
    "stage": STAGE,
    "verdict": VERDICT,
    "glass": GLASS,
    "glass-verdict": GLASS_VERDICT,
    "verb": VERB,
    "step-verb": STEP_VERB,
}

APPLY_CLASSES: Mapping[str, Appearance] = {
    "reboot": Appearance("Reboot", "power", "reboot"),
    "drain": Appearance("Drain", "refresh", "drain"),
    "gpu-pods": Appearance("GPU pods stop", "refresh", "drain"),
    "containerd-restart": Appearance("containerd restart", "refresh", "drain"),
    "network": Appearance("Network agents", "refresh", "drain"),
    "kubelet-restart": Appearance("Kubelet restart", "refresh", "drain"),
    "new-pods": Appearance("New pods", "box", ""),
    "live": Appearance("Live", "bolt", ""),
    "unknown": Appearance("Effect unknown", "help-circle", "reboot"),
}
WHAT_HAPPENS: Mapping[str, str] = {
    "reboot": "cordon, drain, apply, reboot, verify",
    "drain": "cordon, drain, apply, restart the kubelet for its own settings, verify",
    "containerd-restart": "cordon, drain, apply, restart containerd",
    "gpu-pods": "pods that hold GPUs stop; the others stay",
    "network": "network agents restart node by node",
    "kubelet-restart": "cordon, apply, restart the kubelet, verify; pods stay",
    "new-pods": "live for the host; pods see it when they are recreated",
    "live": "no disturbance",
}
THEMES: Mapping[str, Appearance] = {
    "": Appearance("follows the system", "device-desktop", "light"),
    "light": Appearance("light", "sun", "dark"),
    "dark": Appearance("dark", "moon", ""),
}
"""By the person's choice; `css` is the choice that the switch offers next."""

ICONS = frozenset(appearance.icon for table in (*AXES.values(), APPLY_CLASSES, THEMES) for appearance in table.values())


def appearance(axis: str, value: object) -> Appearance:
    """A value newer than this table shows as its own word, in gray: nothing is hidden by absence."""
    name = str(value or "")
    return AXES[axis].get(name) or Appearance(name.replace("-", " ").capitalize() or "Unknown", "help-circle", "unk")


def sign(operator: str) -> str:
    """A setting's operator as people read it; documents and the API keep `>=`."""
    return {">=": "≥", "<=": "≤"}.get(operator, operator)
