"""Every row of nodes, agents' answers and GPU pods held against its object, versions and values, at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from clusters.inventory import rows
from clusters.kube.fleet import KubeFleet
from tests.controlplane.plane import LOOPBACK
from tests.full.harness.site import Site

Said = dict[str, Mapping[str, Any]]
"""Values of each object, by name: its version, and the values that a row has."""

_PRESENT = "SELECT id, name FROM clusters_node WHERE gone_at IS NULL"


def differences(site: Site) -> list[str]:
    """One sentence for each row that is not as its object is; empty when all are."""
    wanted, stored = of_objects(site), of_rows(site)
    out = []
    for kind in wanted:
        for name in sorted(wanted[kind].keys() | stored[kind].keys()):
            right, row = wanted[kind].get(name), stored[kind].get(name)
            if right is None or row is None:
                out.append(f"{kind} {name}: {'no object' if right is None else 'no row'}")
            elif wrong := {key: (row[key], right[key]) for key in right if row[key] != right[key]}:
                out.append(f"{kind} {name}: the row says, and the object {wrong}")
    return out


def of_objects(site: Site) -> dict[str, Said]:
    fleet = KubeFleet(site.plane.admin, policy=LOOPBACK)
    try:
        nodes, tunings, pods = (fleet.list(kind).items for kind in ("nodes", "nodetunings", "pods"))
    finally:
        fleet.close()
    uids = {raw["metadata"]["name"]: raw["metadata"]["uid"] for raw in nodes}

    def entries(raws: Sequence[Mapping[str, Any]], values_of: Any) -> Said:
        by_name = {raw["metadata"]["name"]: (raw["metadata"]["resourceVersion"], values_of(raw)) for raw in raws}
        return {name: {"resource_version": version} | values for name, (version, values) in by_name.items() if values}

    return {
        "node": entries(nodes, rows.node),
        "nodetuning": entries(tunings, lambda raw: rows.tuning(raw, uids.get(raw["metadata"]["name"], ""))),
        "gpupod": entries(pods, rows.gpu_pod),
    }


def of_rows(site: Site) -> dict[str, Said]:
    version = "resource_version"
    with psycopg.connect(site.setpoint.environment["SETPOINT_DATABASE_URL"]) as connection:
        return {
            "node": _read(connection, "clusters_node", (version, *rows.NODE_FIELDS), "gone_at IS NULL"),
            "nodetuning": _read(
                connection,
                f"clusters_nodetuning JOIN ({_PRESENT}) AS n ON n.id = node_id",
                (version, *rows.TUNING_FIELDS),
            ),
            "gpupod": _read(connection, "clusters_gpupod", (version, *rows.POD_FIELDS)),
        }


def _read(connection: Any, table: str, columns: Sequence[str], where: str = "true") -> Said:
    picked = sql.SQL(", ").join(map(sql.Identifier, columns))
    query = sql.SQL("SELECT name, {} FROM {} WHERE {}").format(picked, sql.SQL(table), sql.SQL(where))
    return {name: dict(zip(columns, values, strict=True)) for name, *values in connection.execute(query)}
