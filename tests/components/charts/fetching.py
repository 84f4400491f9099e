"""Charts of a server of the tests, with a row for their repository, and how a fetch is refused."""

from __future__ import annotations

import base64

import pytest

from common.errors import Invalid
from components.catalog.entry import ChartReference
from components.charts import store
from components.charts.store import Unfetchable
from components.models import Archive, Repository
from tests.components.chart_server import AUTHORITY, ChartServer
from tests.components.factories import RepositoryFactory

BASIC = f"Basic {base64.b64encode(b'robot:hunter2').decode()}"


def http(server: ChartServer, *hosts: str, **over) -> ChartReference:
    """The catalog's chart, and a row with the test's own CA."""
    chart = ChartReference("http", server.url("/charts"), "tiny", hosts)
    known(chart, **over)
    return chart


def oci(server: ChartServer, *hosts: str, **over) -> ChartReference:
    chart = ChartReference("oci", server.oci("/charts"), "tiny", hosts)
    known(chart, **over)
    return chart


def known(chart: ChartReference, password: str = "", **over) -> Repository:
    row = RepositoryFactory.build(**({"url": chart.url, "ca": AUTHORITY.pem} | over))
    row.set_secret(password)
    row.save()
    return row


def refusal(chart: ChartReference, version: str = "1.2.3", error: type[Invalid | Unfetchable] = Unfetchable, **how):
    with pytest.raises(error) as raised:
        store.fetch(chart, version, **how)
    assert not Archive.objects.exists()
    assert raised.value.fields
    return raised.value
