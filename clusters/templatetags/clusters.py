"""Words of clusters and nodes for pages: `{% load clusters %}`."""

from __future__ import annotations

from django import template

from common.templatetags.setpoint import NOTHING

register = template.Library()
MODES = {
    "observe": "observe: changes nothing",
    "apply": "apply: reports drift",
    "enforce": "enforce: repairs drift",
}


@register.filter
def agent_mode(mode: str) -> str:
    """Describe an agent's treatment of drift in its mode."""
    return MODES.get(mode, mode or NOTHING)
