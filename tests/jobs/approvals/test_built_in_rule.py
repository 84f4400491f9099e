"""The migration of the built-in rule for production: it changes only an untouched rule."""

from __future__ import annotations

import importlib

import pytest
from django.apps import apps

from jobs.models import ApprovalRule
from tests import marks

migration = importlib.import_module("jobs.migrations.0011_blast_of_components")
pytestmark = pytest.mark.django_db


@pytest.fixture
def rule() -> ApprovalRule:
    """The rule as it was built in until then."""
    migration.backwards(apps, None)
    return ApprovalRule.objects.get(**migration.OLD)


def test_untouched_it_catches_what_disturbs_the_network_and_more(rule):
    migration.forwards(apps, None)
    rule.refresh_from_db()
    assert {"name": rule.name, "worst_class": rule.worst_class} == migration.NEW
    assert rule.approvers == 2


@pytest.mark.parametrize(
    "touch", [{"approvers": 3}, {"is_enabled": False}, {"worst_class": "reboot"}, {"gpu_percent": 10}, {"version": 2}]
)
def test_a_rule_that_somebody_changed_stays_as_it_is(rule, touch):
    marks.put(ApprovalRule.objects.filter(pk=rule.pk), **touch)
    migration.forwards(apps, None)
    rule.refresh_from_db()
    assert rule.name == migration.OLD["name"]
    assert rule.worst_class == touch.get("worst_class", migration.OLD["worst_class"])


def test_a_rule_of_that_name_is_not_doubled(rule):
    ApprovalRule.objects.create(name=migration.NEW["name"], approvers=1)
    migration.forwards(apps, None)
    rule.refresh_from_db()
    assert rule.name == migration.OLD["name"]
