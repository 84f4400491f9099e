"""The parts `components` and `policies` of a profile document: shape, names and bounds, each with path and line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from common import yaml
from profiles.content.cluster import WantedObject
from profiles.document import plain_json
from profiles.document.document import DocumentComponent, ProfileNote, printable_path
from profiles.policies import kinds, manifests
from profiles.policies.kubernetes import Judge

MAX_COMPONENTS = 32
MAX_PRESETS = 16
MAX_VALUES = 64 * 1024
"""Characters of one component's values as JSON. A release keeps them, with the whole chart, in a Secret of 1 MiB."""
MAX_VERSION = 64
MAX_WHY = 500

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,51}[a-z0-9])?")
"""Helm takes 53 characters for a release."""
_VERSION = re.compile(r"v?[0-9]{1,9}(?:\.[0-9]{1,9}){0,2}(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?")
_FIELDS = ("version", "presets", "values", "why", "remove")


class ClusterReader:
    """One pass over one loaded text; problems, warnings and lines are the profile reader's own."""

    def __init__(
        self, loaded: yaml.YamlDocument, problems: list[ProfileNote], warnings: list[ProfileNote], lines: dict[str, int]
    ) -> None:
        self.loaded = loaded
        self.problems = problems
        self.warnings = warnings
        self.lines = lines
        self.within: dict[yaml.Path, list[tuple[yaml.Path, int]]] = {}
        """Everything inside each component and object: (rest of the path, line)."""
        for at, line in loaded.lines.items():
            if len(at) > 1 and at[0] in ("components", "policies"):
                self.within.setdefault(at[:2], []).append((at[2:], line))

    def _refuse(self, path: yaml.Path, code: str, message: str) -> None:
        self.problems.append(ProfileNote(printable_path(path), self.loaded.line(*path), code, message))

    def _warn(self, path: yaml.Path, code: str, message: str) -> None:
        self.warnings.append(ProfileNote(printable_path(path), self.loaded.line(*path), code, message))

    def _remember(self, path: yaml.Path, name: str) -> None:
        """Lines of everything at `path`, under the name that a flattened revision knows it by."""
        for rest, line in self.within.get(path, ()):
            self.lines[printable_path((name, *rest))] = line

    # ── Components ────────────────────────────────────────────────────────────────────────────────────────────────────
    def components(self, raw: Mapping[str, Any]) -> tuple[DocumentComponent, ...]:
        if len(raw) > MAX_COMPONENTS:
            self._refuse(("components",), "too-many", f"holds {len(raw)}; at most {MAX_COMPONENTS} are accepted")
            return ()
        read = [self._component(name, raw_component) for name, raw_component in raw.items()]
        return tuple(sorted((wish for wish in read if wish), key=lambda wish: wish.name))

    def _component(self, name: str, raw: Any) -> DocumentComponent | None:
        path: yaml.Path = ("components", name)
        before = len(self.problems)
        if not _NAME.fullmatch(name):
            self._refuse(path, "bad-name", "a component's name has 1 to 53 lower-case letters, digits and '-'")
        if raw is None:
            raw = {}
        if not isinstance(raw, dict):
            self._refuse(path, "bad-shape", f"must be a mapping with {', '.join(_FIELDS)}, or empty")
            return None
        for field in raw.keys() - set(_FIELDS):
            self._refuse((*path, field), "unknown-field", f"is not known here; there are {', '.join(_FIELDS)}")
        wish = DocumentComponent(
            name=name,
            version=self._version((*path, "version"), raw.get("version")),
            presets=self._presets((*path, "presets"), raw.get("presets")),
            values=self._values((*path, "values"), raw.get("values")),
            why=self._why((*path, "why"), raw.get("why")),
            is_gone=self._gone(path, raw),
        )
        if len(self.problems) > before:
            return None
        self._remember(path, f"components.{name}")
        return wish

    def _gone(self, path: yaml.Path, raw: Mapping[str, Any]) -> bool:
        if raw.get("remove") is None:
            return False
        if raw["remove"] is not True:
            self._refuse((*path, "remove"), "bad-value", "must be true, or be left out")
        elif more := [name for name in ("version", "presets", "values") if raw.get(name) is not None]:
            self._refuse((*path, "remove"), "removed", f"what is removed has no {' and no '.join(more)}; leave one out")
        return True

    def _version(self, path: yaml.Path, raw: Any) -> str:
        if raw is None:
            return ""
        if isinstance(raw, int | float) and not isinstance(raw, bool):
            self._refuse(path, "bad-version", "is read as a number by YAML; put it in quotes")
        elif not isinstance(raw, str) or len(raw) > MAX_VERSION or not _VERSION.fullmatch(raw):
            self._refuse(path, "bad-version", "must be one version of the chart, such as 1.20.0: no range, no word")
        else:
            return raw
        return ""

    def _presets(self, path: yaml.Path, raw: Any) -> tuple[str, ...] | None:
        if raw is None:
            return None
        if not isinstance(raw, list):
            self._refuse(path, "bad-shape", "must be a list of names")
            return None
        if len(raw) > MAX_PRESETS:
            self._refuse(path, "too-many", f"holds {len(raw)} names; at most {MAX_PRESETS} are accepted")
            return None
        out: list[str] = []
        for index, name in enumerate(raw):
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                self._refuse((*path, index), "bad-name", "must be a preset's name: lower-case letters, digits and '-'")
            elif name in out:
                self._refuse((*path, index), "given-twice", f"{name} is given twice")
            else:
                out.append(name)
        return tuple(out)

    def _values(self, path: yaml.Path, raw: Any) -> dict[str, Any]:
        if raw is None:
            return {}
        if not isinstance(raw, dict):
            self._refuse(path, "bad-shape", "must be a mapping, as in the chart's values.yaml")
            return {}
        checked = self._plain(path, raw, MAX_VALUES)
        return checked if isinstance(checked, dict) else {}

    def _plain(self, path: yaml.Path, raw: Any, most: int) -> Any:
        try:
            return plain_json.checked(raw, path, most=most)
        except plain_json.Unfit as refusal:
            self._refuse(refusal.path, refusal.code, str(refusal))
            return None

    def _why(self, path: yaml.Path, raw: Any) -> str:
        if raw is None:
            return ""
        text = " ".join(raw.split()) if isinstance(raw, str) else ""
        if not isinstance(raw, str) or not text.isprintable():
            self._refuse(path, "bad-text", "must be text that can be shown; put it in quotes")
        elif len(text) > MAX_WHY:
            self._refuse(path, "too-long", f"is {len(text)} characters long; at most {MAX_WHY} are kept")
        return text

    # ── Policy objects ────────────────────────────────────────────────────────────────────────────────────────────────
    def policies(self, raw: list[Any]) -> tuple[WantedObject, ...]:
        if len(raw) > kinds.MAX_OBJECTS:
            self._refuse(("policies",), "too-many", f"holds {len(raw)}; at most {kinds.MAX_OBJECTS} are accepted")
            return ()
        out: dict[str, WantedObject] = {}
        for index, item in enumerate(raw):
            path: yaml.Path = ("policies", index)
            policy = self._object(path, item)
            if policy is None:
                continue
            if policy.title in out:
                self._refuse(path, "given-twice", f"{policy.title} is given twice")
                continue
            out[policy.title] = policy
            self._remember(path, f"policies.{policy.title}")
            self._remember(path, f"policies[{index}]")
        return tuple(sorted(out.values(), key=lambda policy: (policy.kind, policy.namespace, policy.name)))

    def _object(self, path: yaml.Path, item: Any) -> WantedObject | None:
        before = len(self.problems)
        checked = self._plain(path, item, kinds.MAX_OBJECT)
        if len(self.problems) > before:
            return None
        judge = Judge(
            lambda at, code, message: self._refuse((*path, *at), code, message),
            lambda at, code, message: self._warn((*path, *at), code, message),
        )
        policy = manifests.read(checked, judge)
        return policy if len(self.problems) == before else None
