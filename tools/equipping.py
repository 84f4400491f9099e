"""Makes of a demo what a visitor makes of it: components installed from a profile, one broken by hand, a channel.

Over REST and `manage.py demo_break`, for the screenshots. Standard library only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 600.0
"""Until it is installed, and until the drift is seen: a minute and a half on a quiet machine."""
COMPONENT = "volcano"


def equip(folder: Path, values: Mapping[str, str]) -> dict[str, Any]:
    """The {places} of pages about components. `folder` is the demo's. Raises TimeoutError."""

    def ask(who: str, path: str, sent: Mapping[str, Any] | None = None) -> Any:
        request = urllib.request.Request(  # noqa: S310  a loopback address of our own server
            f"{values['SETPOINT_URL']}/api/v1/{path}",
            data=None if sent is None else json.dumps(sent).encode(),
            headers={"Authorization": f"Bearer {values[f'SETPOINT_TOKEN_{who}']}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return json.load(answer)

    def rows(path: str) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = ask("OPERATOR", path)["results"]
        return results

    [tried] = [row for row in rows("rollouts?limit=100") if row["cluster_name"] == "fjord-bare"]
    [step] = [row for row in rows(f"rollouts/{tried['id']}/steps?limit=100") if row["component"]]
    [pool] = [row for row in rows("pools?limit=100") if row["name"] == "train"]
    revision = max(rows("profiles/training-platform/revisions"), key=lambda row: int(row["number"]))
    plan = ask("OPERATOR", "plans", {"pool": pool["id"], "revision": revision["id"]})
    act = f"plans/{plan['id']}/actions"
    ask("OPERATOR", f"{act}/request", {})
    ask("APPROVER", f"{act}/approve", {"digest": plan["digest"]})
    rollout = ask("OPERATOR", f"{act}/start", {})
    _await("the rollout", lambda: ask("OPERATOR", f"rollouts/{rollout['id']}")["status"] == "succeeded")
    subprocess.run(
        [sys.executable, "manage.py", "demo_break", "image"],
        cwd=ROOT,
        env={**os.environ, "SETPOINT_VAR": str(folder)},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    channel = {"name": "On call", "kind": "webhook", "what": ["alerts", "rollouts"], "is_enabled": False}
    channel |= {
        "url": "https://hooks.example.com/on-call",
        "secret": "no-secret-of-anybody",
        "least_severity": "critical",
    }
    created = ask("ADMIN", "notice-channels", channel)
    xids = "alerts?rule=fatal-xid&status=open&cluster=atlas-training"
    _await("the alert of an XID", lambda: bool(rows(xids)))
    standing = f"compliance/components?cluster={plan['cluster']}&state=drifted"
    _await("the drift", lambda: bool(rows(standing)))
    return {
        "fjord": plan["cluster"],
        "equipped": rollout["number"],
        "alert": rows(xids)[0]["id"],
        "channel": created["id"],
        "tried": tried["number"],
        "tried_step": step["id"],
    }


def _await(what: str, is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not come within {SECONDS:.0f} s")
        time.sleep(2)
