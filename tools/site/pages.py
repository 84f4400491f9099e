"""The parts of the site, which files they have, and what generated pages begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FOLDERS = ("docs",)
FILES = (
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "LICENSE", "deploy/README.md",
    "deploy/chart/setpoint/README.md", "tests/agent/recorded/README.md", "tests/guards.yaml",
)  # fmt: skip
"""Files outside docs/ that are pages, or that pages link to."""

PARTS: Mapping[str, tuple[str, Sequence[str]]] = {
    "Tutorial": (
        "Learn by doing, step by step: nothing is needed beforehand.",
        ("Try the demo <README>", "docs/real-cluster"),
    ),
    "How-to guides": (
        "Do one thing: install, connect, back up, write a profile, add a component, use REST.",
        (
            "docs/operating", "docs/profiles", "docs/components", "docs/checks", "docs/policy", "docs/change-records",
            "docs/api", "Deploy the agent <deploy/README>", "CONTRIBUTING", "SECURITY", "CODE_OF_CONDUCT",
        ),
    ),
    "Reference": (
        "Look something up. Tables of this part come from the code that is running.",
        (
            "reference/settings", "reference/rest", "reference/metrics", "reference/alerts",
            "The Helm chart <deploy/chart/setpoint/README>", "docs/components/README", "docs/screenshots",
            "docs/coverage", "CHANGELOG",
        ),
    ),
    "Explanation": (
        "Understand why it is as it is: laws, security, figures, decisions, cost.",
        (
            "docs/architecture", "docs/laws", "docs/security", "docs/gpu", "docs/performance",
            "Decisions <docs/adr/README>", "Recorded answers <tests/agent/recorded/README>",
        ),
    ),
}  # fmt: skip
"""Part → what it is for, and its pages in reading order."""

CHILDREN: Mapping[str, str] = {
    "docs/components/README.md": "docs/components/*",
    "docs/adr/README.md": "docs/adr/*",
    "docs/performance.md": "docs/performance/*",
}
"""Pages whose navigation has the pages of a folder."""

GENERATED: Mapping[str, tuple[str, str]] = {
    "settings": (
        "Settings",
        """
Each `SETPOINT_*` variable that Setpoint reads. Each may also be given as a file, by its name with `_FILE`.
How they belong together is in [Operating Setpoint](../docs/operating.md#variables).
""",
    ),
    "rest": (
        "REST",
        """
Every operation under `/api/v1`, by tag. *Roles* are those that may use it on a cluster of theirs; *by the body*: the
role is checked after the body is read, which says what is meant. Tokens need a scope as well: see
[the guide](../docs/api.md). A running server shows the whole document, with bodies and answers, at `/api/v1/docs`.
""",
    ),
    "metrics": (
        "Metrics",
        """
What `/metrics` answers to Prometheus, beside `process_*` of the process itself. Who may read it:
`SETPOINT_METRICS_TOKEN` in [Operating Setpoint](../docs/operating.md#variables).
""",
    ),
    "alerts": (
        "Alert rules and notices",
        """
Each rule with its defaults; administrators change them everywhere or for one cluster.
[Alerts and notices](../docs/operating.md#alerts-and-notices) has how, and who is notified.
""",
    ),
}
"""Generated page in reference/ → its title and first paragraph."""


def index() -> str:
    """Return the first page, with the navigation of the four parts."""
    out = [
        "# Setpoint",
        "Tunes and equips Kubernetes clusters for AI work: reviewed plans, safe rollouts, verified in the kernel.",
    ]
    for part, (purpose, pages) in PARTS.items():
        out.append(f"## {part}\n\n{purpose}\n\n" + _toctree("\n".join(pages), f":caption: {part}\n:maxdepth: 1"))
    return "\n\n".join(out) + "\n"


def with_children(name: str, text: str) -> str:
    """Return a staged document with the navigation to its children, which readers on GitHub have as links."""
    if pattern := CHILDREN.get(name):
        navigation = _toctree(pattern.removeprefix(_folder(name)), ":hidden:\n:glob:")
        return f"{text}\n\n{navigation}\n"
    return text


def generated(name: str, body: str) -> str:
    title, first = GENERATED[name]
    return f"# {title}\n{first}\n{body}"


def _folder(name: str) -> str:
    return f"{name.rpartition('/')[0]}/"


def _toctree(entries: str, options: str) -> str:
    return f"```{{toctree}}\n{options}\n\n{entries}\n```"
