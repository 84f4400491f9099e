"""docs/profiles.md says what is so."""

from __future__ import annotations

import re
from pathlib import Path

from profiles import exports
from profiles.catalog.known_settings import _FIELDS
from profiles.document import cluster_schema, plain_json, schema
from profiles.policies import kinds
from profiles.services import editing, library
from tests.profiles.services.test_library import INTENTS, flat

TEXT = (Path(__file__).parents[3] / "docs" / "profiles.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """Cells of the table that has this first heading."""
    table = TEXT[TEXT.index(f"| {heading} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table]


def test_its_example_can_be_published():
    example = re.search(r"```yaml\n(.*?)```", TEXT, re.DOTALL)[1]

    checked = schema.flatten(schema.parse(example), flat("gpu-baseline").content, origin="mine r1")

    assert checked.content.setting("net.core.rmem_max").value == "536870912"
    assert checked.content.setting("vm.max_map_count") is None


def test_its_example_of_components_and_objects_can_be_published():
    example = next(text for text in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL) if "components:" in text)

    content = schema.flatten(schema.parse(example), None, origin="mine r1").content

    assert [c.name for c in content.components] == ["cilium", "volcano"]
    assert [o.kind for o in content.policies] == ["Namespace", "Queue", "ResourceQuota"]


def test_it_names_every_kind_of_object_and_whether_it_has_a_namespace():
    named = {word: of for first, of, *_ in rows("Kind") for word in re.findall(r"`(\w+)`", first)}
    assert named == {name: "namespace" if kind.is_namespaced else "cluster" for name, kind in kinds.KINDS.items()}
    assert f"at most {cluster_schema.MAX_VALUES // 1024} KiB and {plain_json.MAX_DEPTH} levels" in TEXT


def test_it_names_every_part_format_and_library_profile():
    parts = {word for first, *_ in rows("Part") for word in re.findall(r"`(\w+)`", first)}
    assert parts == set(schema._PARTS)
    assert [first.strip("`") for first, *_ in rows("Format")] == list(exports.FORMATS)
    named = {first.strip("`"): worst for first, _, worst, _ in rows("Profile")}
    assert named == INTENTS
    assert set(named) == set(library.names())


def test_the_catalogs_fields_and_the_bounds_it_quotes_are_real():
    named = {word for first, *_ in rows("Field") for word in re.findall(r"`(\w+)`", first)}
    assert named <= _FIELDS
    assert {"platforms", "risk", "sources", "range", "class", "namespace"} <= named
    for quoted, real in (("at most 300 char", schema.MAX_DESCRIPTION), ("at most 500 char", schema.MAX_WHY)):
        assert quoted in TEXT
        assert str(real) in quoted
    assert f"At most {editing.DEEPEST} extend" in TEXT
    assert f"{schema.MAX_DEPTH} levels" in TEXT
    assert f"{editing.MAX_SOURCE // 1024} KiB" in TEXT
