"""Authority of the account that carries a component out: each right that it needs, whether it has it, and its name.

Plain data of a plan. The needed rights are read from the rendered chart (components.access.rights); the API server is
asked for the granted ones (components.access.asking), when the plan is made and again just before helm runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Right:
    """One rule of Kubernetes' roles, in one place."""

    namespace: str
    """Empty: everywhere."""
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    why: str = ""
    """What of the component needs it."""
    use: str = "own"
    """own (an object of the chart), hook, records (helm's own), grant (a role of the chart), bind, or replaced (an
    object of the cluster's own that the component takes the place of, and that a revert makes again)"""
    danger: str = ""
    """What else its holder can do; empty: nothing that the chart does not say."""
    lacks: tuple[str, ...] = ()
    """What of it the account has not, each as `create configmaps`; () where it has all, and before it was asked."""

    @property
    def rule(self) -> dict[str, Any]:
        """Return the right as a rule of a role."""
        parts = (
            ("apiGroups", self.groups),
            ("resources", self.resources),
            ("resourceNames", self.names),
            ("nonResourceURLs", self.urls),
            ("verbs", self.verbs),
        )
        return {name: list(value) for name, value in parts if value}

    @property
    def text(self) -> str:
        """`get, list services, endpoints of apps (names)`"""
        what = ", ".join(self.urls or self.resources)
        groups = " and ".join(group or "core" for group in self.groups)
        named = f" named {', '.join(self.names)}" if self.names else ""
        return f"{', '.join(self.verbs)}: {what}{f' ({groups})' if groups not in ('', 'core') else ''}{named}"

    @classmethod
    def of(
        cls, rule: Mapping[str, Any], namespace: str = "", *, why: str = "", use: str = "own", danger: str = ""
    ) -> Right:
        def part(name: str) -> tuple[str, ...]:
            return tuple(str(text) for text in rule.get(name) or ())

        return cls(
            namespace,
            part("apiGroups"),
            part("resources"),
            part("resourceNames"),
            part("nonResourceURLs"),
            part("verbs"),
            why,
            use,
            danger,
        )

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Right:
        known: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
        return cls(**known)


@dataclass(frozen=True, slots=True)
class Authority:
    """The account that helm runs as, and what of the rights it had when the plan was made."""

    account: str
    """A service account of Setpoint's; empty: the cluster's own credential, where helm has none apart."""
    rights: tuple[Right, ...] = ()
    administrator_until: str = ""
    """ISO 8601: helm runs as a cluster administrator, and that ends then. Empty: it does not."""
    is_known: bool = True
    """Whether the API server said what the account may do."""

    @property
    def lacking(self) -> tuple[Right, ...]:
        return tuple(right for right in self.rights if right.lacks)

    @property
    def dangerous(self) -> tuple[Right, ...]:
        return tuple(right for right in self.rights if right.danger)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Authority:
        return cls(**{**raw, "rights": tuple(Right.from_json(right) for right in raw.get("rights", ()))})


UNDOES = frozenset(("get", "list", "watch", "delete"))
"""What an uninstall asks for of a release's own objects."""
_DEFINITIONS = ("customresourcedefinitions",)
"""Made once more where helm could not finish otherwise (components.release.definitions)."""


def undoing(rights: Sequence[Right]) -> list[Right]:
    """Return those of the rights that a removal needs: it makes no role, so what the chart grants need not be held."""
    out = []
    for right in rights:
        if right.use == "own":
            kept = UNDOES | {"create"} if right.resources == _DEFINITIONS else UNDOES
            out.append(replace(right, verbs=tuple(verb for verb in right.verbs if verb in kept)))
        elif right.use in ("hook", "records", "replaced"):
            out.append(right)
    return out
