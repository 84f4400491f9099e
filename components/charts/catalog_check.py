"""The catalog against the repositories: does each chart still come, and does it know every key of every preset?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from common.errors import Refusal
from components.catalog import values_check
from components.catalog.entry import Component
from components.catalog.versions import numbers, same_version
from components.charts import archives, store


@dataclass(frozen=True, slots=True)
class CatalogFinding:
    component: str
    version: str
    is_wrong: bool
    text: str

    def __str__(self) -> str:
        return f"{self.component} {self.version}: {self.text}"


def check(component: Component) -> Iterator[CatalogFinding]:
    """Fetches what is not stored yet; waits on the network, and raises nothing."""
    for tested in component.versions:
        try:
            archive = store.fetch(component.chart, tested.version)
            chart = archives.judge(archives.content(archive.sha256))
        except Refusal as error:
            yield CatalogFinding(component.name, tested.version, is_wrong=True, text=str(error))
            continue
        problems = list(_keys(component, chart))
        for text in problems:
            yield CatalogFinding(component.name, tested.version, is_wrong=True, text=text)
        if not problems:
            many = len(component.presets)
            text = f"{many} preset{' keeps' if many == 1 else 's keep'} to the chart (SHA-256 {chart.sha256[:12]}…)"
            yield CatalogFinding(component.name, tested.version, is_wrong=False, text=text)
    yield from _newer(component)


def _keys(component: Component, chart: archives.ChartContent) -> Iterator[str]:
    for presets in ((), *((name,) for name in component.presets)):
        layered = values_check.layered(component, presets=presets)
        notes = values_check.judge(
            layered, chart.values, chart.schema, text=chart.values_text, subcharts=chart.subcharts
        )
        for note in notes:
            if note.code not in ("decision", "preset-needs"):
                yield f"{f'preset {presets[0]}' if presets else 'base values'}: {note.path or 'values'}: {note.message}"


def _newer(component: Component) -> Iterator[CatalogFinding]:
    """Yield the versions that the repository offers beyond the newest that is known.

    Pre-releases are left out.
    """
    try:
        offered = store.versions(component.chart)
    except Refusal as error:
        yield CatalogFinding(
            component.name, "", is_wrong=True, text=f"what the repository offers is not known: {error}"
        )
        return
    known = numbers(component.newest)
    stable = [version for version in offered if "-" not in version and len(numbers(version)) == len(known)]
    newest = max(stable, key=numbers, default="")
    if newest and numbers(newest) > known and not same_version(newest, component.newest):
        text = f"the repository offers {newest}; the catalog knows {component.newest}"
        yield CatalogFinding(component.name, newest, is_wrong=False, text=text)
