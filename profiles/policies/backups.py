"""Checks of Velero's schedules of backups. Source: Velero's API velero.io/v1 (v1.17)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from profiles.policies.kubernetes import Judge

_SCHEDULE = ("schedule", "template", "paused", "skipImmediately", "useOwnerReferencesInBackup")
_CRON = re.compile(r"(?:(?:CRON_)?TZ=\S+ )?(?:@(?:yearly|annually|monthly|weekly|daily|midnight|hourly)|@every \S+"
                   r"|[^\s]+(?: +[^\s]+){4})")  # fmt: skip


def schedule(judge: Judge, raw: Mapping[str, Any]) -> None:
    spec = judge.mapping(("spec",), raw.get("spec"), required=True)
    judge.known(("spec",), spec, _SCHEDULE)
    when = spec.get("schedule")
    if spec and (not isinstance(when, str) or not _CRON.fullmatch(when)):
        judge.refuse(("spec", "schedule"), 'must be a cron expression of five fields, such as "0 2 * * *", or @daily')
    for name in ("paused", "skipImmediately", "useOwnerReferencesInBackup"):
        judge.boolean(("spec", name), spec.get(name))
    template = judge.mapping(("spec", "template"), spec.get("template"), required=bool(spec))
    hooks = template.get("hooks")
    if hooks and hooks != {"resources": []}:
        message = "runs commands in pods with Velero's own rights; write them as annotations of those pods"
        judge.refuse(("spec", "template", "hooks"), message, code="escalation")
