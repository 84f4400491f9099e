from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps


def read_again(apps: StateApps, _: BaseDatabaseSchemaEditor) -> None:
    """Rows without a version are older than any object, so that the next list fills the new column."""
    apps.get_model("clusters", "GpuPod").objects.update(resource_version="")


class Migration(migrations.Migration):
    dependencies = [("clusters", "0011_true_rows_and_watchers")]

    operations = [
        migrations.AddField(
            model_name="gpupod",
            name="tolerations",
            field=models.JSONField(
                default=list, help_text="Those that count for NoExecute; see clusters.tolerations."
            ),
        ),
        migrations.RunPython(read_again, migrations.RunPython.noop),
    ]
