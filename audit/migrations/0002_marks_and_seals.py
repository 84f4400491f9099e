"""Marks of who wrote a record, and seals as rows of their own, so that records are only ever inserted.

Nothing is signed here: records of before keep the seals they have, as of the first scheme, and carry no mark.
"""

from __future__ import annotations

import common.clock
import django.db.models.deletion
from django.db import migrations, models

TABLES = ("audit_record", "audit_seal", "audit_refusal")


def copy_seals(apps, schema_editor):
    schema_editor.execute(
        "INSERT INTO audit_seal (seq, record_id, seal, scheme) "
        "SELECT seq, id, seal, 1 FROM audit_record WHERE seq IS NOT NULL"
    )
    newest = apps.get_model("audit", "Record").objects.exclude(seq=None).order_by("-at").first()
    if newest is not None:
        apps.get_model("audit", "Chain").objects.update(newest_at=newest.at)


def refuse_changes(apps, schema_editor):
    if schema_editor.connection.vendor != "postgresql":
        return
    schema_editor.execute(
        "CREATE OR REPLACE FUNCTION setpoint_append_only() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'rows of % are never changed or deleted', TG_TABLE_NAME; END $$",
        params=None,  # its % is PostgreSQL's
    )
    for table in TABLES:
        schema_editor.execute(
            f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE ON {table} "
            "FOR EACH ROW EXECUTE FUNCTION setpoint_append_only()"
        )
        schema_editor.execute(f"REVOKE UPDATE, DELETE, TRUNCATE ON {table} FROM PUBLIC")


def allow_changes(apps, schema_editor):
    if schema_editor.connection.vendor == "postgresql":
        for table in TABLES:
            schema_editor.execute(f"DROP TRIGGER IF EXISTS {table}_append_only ON {table}")


class Migration(migrations.Migration):
    dependencies = [("audit", "0001_initial")]

    operations = [
        migrations.AddField("record", "mac", models.CharField(blank=True, default="", help_text="Of the process that wrote it; empty: before 2026-11.", max_length=64), preserve_default=False),
        migrations.AddField("chain", "newest_at", models.DateTimeField(help_text="The newest time of a sealed record.", null=True)),
        migrations.AddField("chain", "broken", models.CharField(blank=True, default="", help_text="Why nothing is sealed; empty: it is.", max_length=300), preserve_default=False),
        migrations.CreateModel(
            name="Seal",
            fields=[
                ("seq", models.BigIntegerField(primary_key=True, serialize=False)),
                ("seal", models.CharField(max_length=64)),
                ("scheme", models.PositiveSmallIntegerField(choices=[(1, "Sealed as it was in the table: records carried no mark of their writer"), (2, "The record's mark was right when it was sealed")], default=2)),
                ("at", models.DateTimeField(help_text="When it was sealed; part of it. Null in the first scheme.", null=True)),
                ("record", models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name="sealed_as", to="audit.record")),
            ],
            options={"ordering": ["seq"]},
        ),
        migrations.CreateModel(
            name="Refusal",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("why", models.CharField(max_length=200)),
                ("at", models.DateTimeField(default=common.clock.now)),
                ("record", models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name="refused_as", to="audit.record")),
            ],
            options={"ordering": ["pk"]},
        ),
        migrations.RunPython(copy_seals, migrations.RunPython.noop),
        migrations.RemoveField("record", "seq"),
        migrations.RemoveField("record", "seal"),
        migrations.RunPython(refuse_changes, allow_changes),
    ]
