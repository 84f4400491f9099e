"""Processes of the release before work while the database is migrated (docs/operating.md, Upgrade)."""

from __future__ import annotations

from collections.abc import Iterator

from django.apps import apps
from django.db.migrations import AddField, Migration
from django.db.migrations.loader import MigrationLoader
from django.db.models import NOT_PROVIDED

BEFORE = {
    "accounts": 13, "audit": 2, "clusters": 20, "compliance": 9, "components": 7, "gpus": 12, "jobs": 32, "notices": 5,
    "profiles": 1,
}  # fmt: skip
"""Numbers of the migrations that were made before this was held."""


def new_migrations() -> Iterator[Migration]:
    for (app, name), migration in MigrationLoader(None).disk_migrations.items():
        if app in BEFORE and int(name[:4]) > BEFORE[app]:
            yield migration


def test_a_new_column_of_a_table_that_is_written_to_has_a_default_in_the_database() -> None:
    """The release before writes rows without it."""
    lacking = [
        f"{migration.app_label} {migration.name}: {operation.model_name}.{operation.name} needs db_default"
        for migration in new_migrations()
        for operation in migration.operations
        if isinstance(operation, AddField) and not operation.field.null and not operation.field.many_to_many
        and operation.field.db_default is NOT_PROVIDED
    ]  # fmt: skip
    assert lacking == []


def test_every_app_with_tables_is_looked_at() -> None:
    ours = {config.label for config in apps.get_app_configs() if "site-packages" not in config.path}
    assert {config for config in ours if any(apps.get_app_config(config).get_models())} == set(BEFORE)
