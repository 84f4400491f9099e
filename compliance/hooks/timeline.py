"""Timeline entries of compliance: settings that drifted, were repaired, or were released."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.urls import reverse

from common.look import appearance
from common.timeline import DRIFT, Entry, Subject, place
from compliance.models import ComplianceState, SettingChange

SOURCE = "setting"
READ = ("at", "key", "state", "operator", "desired", "effective", "cause", "won_by", "node_id", "node__name")
TOGETHER = {
    str(ComplianceState.COMPLIANT): "{} settings are as desired",
    str(ComplianceState.PENDING): "{} settings wait to be written",
    SettingChange.RELEASED: "{} settings were released",
}
"""Of one node: a rollout writes a dozen at once. What drifted is told one by one."""


def entries(subject: Subject) -> Iterable[Entry]:
    """Yield every change of a node; of larger subjects only drift, for rollouts report the rest themselves."""
    if not subject.wants(DRIFT):
        return ()
    rows = SettingChange.objects.select_related("node").only(*READ)
    drifted = rows.filter(state=ComplianceState.DRIFTED)
    of_kind = {
        "node": lambda: rows.filter(node=subject.row),
        "cluster": lambda: drifted.filter(node__cluster=subject.row),
        "pool": lambda: drifted.filter(node__standing__pool=subject.row),
        "rollout": lambda: drifted.filter(rollout_id=subject.row.pk),
    }
    if subject.kind not in of_kind:
        return ()
    return _entries(subject.rows(of_kind[subject.kind](), SOURCE), on_node=subject.kind == "node")


def _entries(rows: Iterable[SettingChange], *, on_node: bool) -> Iterator[Entry]:
    for row in rows:
        seen = appearance("compliance", row.state)
        sentence = f"{row.key} {_became(row)}"
        yield Entry(
            place(row.at, SOURCE, row.pk),
            DRIFT,
            sentence if on_node else f"{sentence} on {row.node.name}",
            "arrow-back-up" if row.state == SettingChange.RELEASED else seen.icon,
            "neu" if row.state == SettingChange.RELEASED else seen.css,
            url=f"{reverse('compliance:changes')}?node={row.node_id}&key={row.key}",
            detail=f"{row.won_by} won" if row.won_by else row.get_cause_display() if row.cause else "",
            on=row.key if on_node else row.node.name,
            alike=TOGETHER.get(row.state, "") if on_node else _many(sentence),
        )


def _many(sentence: str) -> str:
    """A value is strangers' text: braces in it are no place for a number."""
    return sentence.replace("{", "{{").replace("}", "}}") + " on {} nodes"


def _became(row: SettingChange) -> str:
    value = "absent" if row.effective is None else row.effective
    words = {
        str(ComplianceState.DRIFTED): f"drifted to {value}",
        str(ComplianceState.COMPLIANT): f"is {value}, as desired",
        str(ComplianceState.PENDING): f"waits to become {row.operator} {row.desired}",
        SettingChange.RELEASED: "was released",
    }
    return words.get(row.state, f"became {row.state}")
