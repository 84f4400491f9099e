"""Writes config/api_examples/answers.yaml from a running demo: one real answer for each component of the schema.

Run it when the shape of an answer has changed: `make demo` in one terminal, then here
`python tools/record_api_examples.py var/demo.env`. Long lists and texts are cut; a test holds each to its
schema. What the demo has none of is kept as it was written, and named.
"""

from __future__ import annotations

import json
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
ANSWERS = ROOT / "config" / "api_examples" / "answers.yaml"
MOST_ITEMS = 2
MOST_KEYS = 6
MOST_TEXT = 400
SHOWN = "sp_examplexmpl1.not-a-token"
SESSION = {
    "id": 7,
    "user": "ada@example.com",
    "device": "Firefox on Linux",
    "browser": "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
    "address": "10.0.4.17",
    "started_at": "2026-11-21T08:00:00Z",
    "seen_at": "2026-11-21T11:58:00Z",
    "is_this": False,
}
"""Only a browser has one; the recorder comes with a token."""


class Demo:
    """The API as the demo's people see it."""

    def __init__(self, file: Path) -> None:
        self.values = dict(line.split("=", 1) for line in file.read_text(encoding="utf-8").splitlines())

    def ask(self, path: str, body: Any = None, *, who: str = "ADMIN") -> Any:
        request = urllib.request.Request(  # noqa: S310 - the demo's own address
            f"{self.values['SETPOINT_URL']}/api/v1/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.values[f'SETPOINT_TOKEN_{who}']}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return json.load(answer)

    def first(self, path: str, **filters: Any) -> Any:
        """The first row, whole, of a list."""
        return self.ask(f"{path}?{urllib.parse.urlencode({**filters, 'limit': 1})}")["results"][0]


def record(demo: Demo) -> dict[str, Any]:
    """Return an answer for each component. A token and a freeze are made for it."""
    cluster = demo.first("clusters", name="atlas-training")["id"]
    node = demo.first("compliance/settings", state="drifted")["node"]
    sent = yaml.safe_load((ROOT / "config/api_examples/requests.yaml").read_text(encoding="utf-8"))
    people, rollouts = _of_people(demo), _of_rollouts(demo, cluster, sent)
    return (
        people
        | rollouts
        | _of_clusters(demo, cluster, node, sent)
        | _of_profiles(demo, sent)
        | _of_compliance(demo, node)
    )


def _of_clusters(demo: Demo, cluster: str, node: str, sent: dict[str, Any]) -> dict[str, Any]:
    """Answers about clusters, their nodes and GPUs."""
    return {
        "ClusterDetailOut": demo.ask(f"clusters/{cluster}"),
        "ClusterOut": demo.first("clusters"),
        "FarewellOut": demo.ask(f"clusters/{cluster}/farewell"),
        "FitOut": demo.ask(f"clusters/{cluster}/gpu-fit"),
        "GpuOut": demo.first("gpus/devices"),
        "GpuJobOut": (job := demo.first("gpus/jobs")),
        "GpuJobDetailOut": demo.ask(f"gpus/jobs/{job['id']}"),
        "GpuSummaryOut": demo.ask("gpus/summary"),
        "HeldIdleOut": demo.ask("gpus/held-idle"),
        "NodeDetailOut": demo.ask(f"nodes/{node}"),
        "NodeOut": demo.first("nodes", cluster=cluster),
        "PoolDetailOut": demo.ask(f"pools/{demo.first('pools')['id']}"),
        "PoolOut": demo.first("pools"),
        "PreviewOut": demo.ask(f"clusters/{cluster}/pools/preview", sent["SelectorInRequest"]),
        "TelemetryOut": demo.ask(f"clusters/{cluster}/telemetry"),
        "TelemetryVerdict": demo.ask(f"clusters/{cluster}/telemetry/actions/test", {"kind": "exporters"}),
        "TimelineOut": demo.ask(f"nodes/{node}/timeline"),
        "VerdictOut": demo.ask(f"clusters/{cluster}/actions/test", {}, who="OPERATOR"),
    }


def _of_profiles(demo: Demo, sent: dict[str, Any]) -> dict[str, Any]:
    """Answers about profiles and what they choose from."""
    revision = demo.first("revisions")["id"]
    profile = demo.first("profiles", is_library="false")["name"]
    return {
        "ComponentOut": demo.ask("components/cert-manager"),
        "DifferenceOut": demo.ask(f"revisions/{revision}/diff")[0],
        "ExportOut": demo.ask(f"revisions/{revision}/exports/sysctl.d"),
        "ImportOut": demo.ask("profiles/actions/import", sent["ImportInRequest"], who="OPERATOR"),
        "ProfileBrief": demo.first("profiles"),
        "ProfileCheck": demo.ask(f"profiles/{profile}/actions/check", sent["CheckInRequest"]),
        "ProfileOut": demo.ask(f"profiles/{profile}"),
        "RevisionBrief": demo.first("revisions"),
        "RevisionOut": demo.ask(f"revisions/{revision}"),
        "SettingOut": demo.ask("settings/vm.swappiness"),
        "UseOut": demo.ask(f"revisions/{revision}/uses")[0],
    }


def _of_compliance(demo: Demo, node: str) -> dict[str, Any]:
    """Answers about compliance."""
    return {
        "AssignmentOut": demo.first("compliance/assignments"),
        "MatrixOut": demo.ask("compliance/matrix?cluster=cirrus-dev"),
        "NodeComplianceOut": demo.ask(f"compliance/nodes/{node}"),
        "OutlierOut": demo.first("compliance/outliers"),
        "SettingChangeOut": demo.first("compliance/changes"),
        "SettingStateOut": demo.first("compliance/settings", state="drifted"),
        "SummaryOut": demo.ask("compliance/summary"),
    }


def _of_rollouts(demo: Demo, cluster: str, sent: dict[str, Any]) -> dict[str, Any]:
    """Answers about plans, approval and rollouts; a freeze is set and lifted."""
    plan = demo.first("plans", status="review")["id"]
    rollout = demo.first("rollouts", status="succeeded")["id"]
    freeze = demo.ask("freezes", sent["FreezeInRequest"] | {"cluster": cluster}, who="OPERATOR")
    demo.ask(f"freezes/{freeze['id']}/actions/lift", {}, who="OPERATOR")
    return {
        "EventOut": demo.first(f"rollouts/{rollout}/events"),
        "FreezeOut": freeze,
        "PlanDetailOut": demo.ask(f"plans/{plan}", who="APPROVER"),
        "PlanNodeOut": demo.first(f"plans/{plan}/nodes"),
        "PlanOut": demo.first("plans"),
        "RolloutDetailOut": demo.ask(f"rollouts/{rollout}"),
        "RolloutOut": demo.first("rollouts"),
        "RuleOut": demo.first("approval-rules"),
        "StepOut": demo.first(f"rollouts/{rollout}/steps"),
    }


def _of_people(demo: Demo) -> dict[str, Any]:
    """Answers about people and what they did; a token is made."""
    token = demo.ask("tokens", {"name": "nightly report", "scopes": ["read"], "days": 90})
    return {
        "BindingOut": demo.first("role-bindings"),
        "MeOut": demo.ask("me", who="OPERATOR"),
        "RecordOut": demo.first("audit"),
        "SessionOut": SESSION,
        "SessionsEnded": {"ended": 2},
        "TokenMade": token | {"token": SHOWN},
        "TokenOut": demo.first("tokens"),
        "UserOut": demo.first("users", ordering="email"),
    }


def cut(value: Any) -> Any:
    """Short enough to be read."""
    if isinstance(value, list):
        return [cut(item) for item in value[:MOST_ITEMS]]
    if isinstance(value, dict):
        rows = list(value.items())
        if any("." in name for name in value):  # keys of settings, not fields
            rows = rows[:MOST_KEYS]
        return {name: cut(item) for name, item in rows}
    if isinstance(value, str) and len(value) > MOST_TEXT:
        return value[:MOST_TEXT].rsplit("\n", 1)[0] + "\n…"
    return value


def main(file: str) -> None:
    kept = yaml.safe_load(ANSWERS.read_text(encoding="utf-8"))
    recorded = {name: cut(answer) for name, answer in record(Demo(Path(file))).items()}
    head = "# Answers of the demo, written by tools/record_api_examples.py; what the demo does not answer is kept.\n"
    text = yaml.safe_dump(kept | recorded, sort_keys=True, allow_unicode=True, width=120)
    ANSWERS.write_text(head + text, encoding="utf-8")
    sys.stdout.write(f"kept as they were: {', '.join(sorted(set(kept) - set(recorded))) or 'none'}\n")


if __name__ == "__main__":
    main(sys.argv[1])
