"""The catalog entry that a plan was approved with: a site's own can be changed, and then the plan is stale.

Nothing is carried out by an entry that no approver saw. The digest of its text is of the plan, and so is whether an
administrator had classified it; that one has since makes nothing worse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from components.catalog import catalog
from components.catalog.entry import Component
from components.helm.errors import HelmRefused
from components.plans.prepared import WARN, PlanNote, Prepared


def of(component: Component) -> dict[str, Any]:
    """Return the fields of Prepared that name the component and its entry."""
    return {"component": component.name, "entry": component.entry, "is_untested": component.is_untested}


def notes(component: Component) -> Iterator[PlanNote]:
    if component.is_untested:
        yield PlanNote(
            WARN,
            "untested-entry",
            f"The catalog entry of {component.title} is this site's own, and untested",
            "No one but its authors has read what it says, so every change counts as the strictest class. An "
            "administrator who did not write it can classify it.",
        )


def changed_reason(prepared: Prepared) -> str:
    """Explain why the plan's entry is not the catalog's any more; empty while it is."""
    return reason_of(prepared.component, prepared.entry, is_untested=prepared.is_untested)


def reason_of(name: str, entry: str, *, is_untested: bool) -> str:
    try:
        component = catalog.current().get(name)
    except catalog.Unknown:
        return f"The catalog entry of {name} that the plan was made with is gone; plan again."
    if component.entry != entry:
        return f"The catalog entry of {name} was changed since the plan was made; plan again."
    if component.is_untested and not is_untested:
        return f"The catalog entry of {name} is not classified any more; plan again."
    return ""


def component(prepared: Prepared) -> Component:
    """Return the component as the plan was approved with it. Raises HelmRefused."""
    if reason := changed_reason(prepared):
        raise HelmRefused(reason)
    return catalog.current().get(prepared.component)
