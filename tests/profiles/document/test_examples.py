"""Every text that a catalog or a document offers to be copied into a profile is accepted by the parser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.catalog import catalog
from components.policies import policy_kinds
from config import forwarding, oidc
from profiles.content.content import Content
from profiles.document import schema
from profiles.services import library

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
EXAMPLES = [(component.name, example) for component in catalog.all() for example in component.examples]
FENCES = [
    (path.relative_to(ROOT), number, text)
    for path in PAGES
    for number, text in enumerate(re.findall(r"^```ya?ml\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S))
]


def flat(raw: Any) -> Content:
    written = yaml.safe_dump(raw, sort_keys=False)
    base = raw.get("extends")
    parent = schema.flatten(schema.parse(library.source(base)), None, origin=base).content if base else None
    return schema.flatten(schema.parse(written), parent, origin="mine r1").content


def as_profile(raw: dict[str, Any], page: Path) -> dict[str, Any]:
    """An object belongs below `policies`, a profile is itself, and anything else on a component's page are values.

    Values may be called like a part of a profile (`settings`), so a profile there names components or policies.
    """
    if "kind" in raw:
        return {"policies": [raw]}
    is_profile = raw.keys() <= set(schema._PARTS) | {"extends", "description"}
    if page.parent.name == "components":
        is_profile = is_profile and bool(raw.keys() & {"components", "policies"})
    return raw if is_profile else {"components": {page.stem: {"values": raw}}}


@pytest.mark.parametrize(("component", "example"), EXAMPLES, ids=lambda argument: getattr(argument, "title", argument))
def test_an_example_of_the_catalog_can_be_wanted_and_its_kind_comes_with_its_component(component, example):
    wanted = flat({"components": {component: {}}, "policies": [dict(example.body)]}).policies

    assert [(policy.kind, policy.name) for policy in wanted] == [
        (example.body["kind"], example.body["metadata"]["name"])
    ]
    assert example.body["kind"] in policy_kinds.ROWS


@pytest.mark.parametrize(("page", "number", "text"), FENCES, ids=lambda argument: str(argument)[:40])
def test_yaml_of_a_document_can_be_published_or_is_a_setting_that_is_accepted(page, number, text):
    raw = yaml.safe_load(text)
    if isinstance(raw, list) and "kind" in raw[0]:
        assert len(forwarding.destinations(text)) == len(raw)
    elif isinstance(raw, list):
        assert oidc.mapping("SETPOINT_OIDC_CORP_ROLES", text)
    else:
        assert flat(as_profile(raw, page))


def test_there_are_examples():
    assert len(EXAMPLES) >= 4
    assert len(FENCES) >= 40
