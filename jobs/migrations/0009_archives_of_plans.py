from django.db import migrations, models
from django.db.models import F
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce


def fill(apps, schema_editor):
    rows = apps.get_model("jobs", "PlanComponent").objects.filter(kind="release", prepared__has_key="archive")
    rows.exclude(prepared__archive=None).update(archive=Coalesce(KT("prepared__archive"), F("archive")))


class Migration(migrations.Migration):
    dependencies = [("jobs", "0008_component_owners")]

    operations = [
        migrations.AddField(
            model_name="plancomponent",
            name="archive",
            field=models.CharField(
                blank=True, default="", help_text="SHA-256 of the chart's, as in `prepared`.", max_length=64
            ),
            preserve_default=False,
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
        migrations.AddIndex(
            model_name="plancomponent",
            index=models.Index(
                condition=models.Q(("archive", ""), _negated=True), fields=["archive"], name="plans_of_an_archive"
            ),
        ),
    ]
