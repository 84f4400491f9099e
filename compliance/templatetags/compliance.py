from __future__ import annotations

from django import template

from compliance.services import causes

register = template.Library()
register.filter("without_file", causes.without_file)
