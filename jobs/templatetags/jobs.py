"""Sentences of plans and rollouts for pages: `{% load jobs %}`, over jobs.reports.wording."""

from __future__ import annotations

from django import template

from jobs.reports import wording

register = template.Library()
register.filter(wording.in_one_sentence)
register.filter(wording.gpus_reached)
register.filter(wording.values_changed)
register.filter(wording.beside_reboots)
register.filter(wording.after_a_failure)
register.filter(wording.origin)
register.filter(wording.why_not_counted)
register.filter(wording.still_missing)
register.simple_tag(wording.from_whom)
register.simple_tag(wording.approval_means)
register.simple_tag(wording.stops_at)
register.filter(wording.resting)
register.filter(wording.why_no_output)
