"""Tags and filters of pages that show compliance: `{% load compliance %}`."""

from __future__ import annotations

from django import template
from django.urls import reverse

from common.templatetags.setpoint import query
from compliance.models import ComplianceState
from compliance.reports import wording
from compliance.reports.selectors import UNASSIGNED, Column
from compliance.services import causes

register = template.Library()
register.filter("without_file", causes.without_file)
register.filter(wording.next_of_plan)


@register.simple_tag
def cell_url(column: Column, key: str) -> str:
    """Return a cell's address: its settings, or nodes that are not heard or have not had their turn."""
    worst, pool = column.cells[key].worst, column.assignment.pool_id
    if worst == ComplianceState.DRIFTED:
        return reverse("compliance:settings") + query(pool=pool, key=key, state=worst)
    if worst == ComplianceState.COMPLIANT:
        return reverse("compliance:settings") + query(pool=pool, key=key)
    return reverse("compliance:nodes") + query(pool=pool, state="" if worst == UNASSIGNED else worst)
