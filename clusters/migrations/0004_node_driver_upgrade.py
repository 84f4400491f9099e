from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusters", "0003_silent_since")]

    operations = [
        migrations.AddField(
            model_name="node",
            name="driver_upgrade",
            field=models.CharField(
                blank=True,
                default="",
                help_text="The state that an operator's own driver upgrade is in; empty: in none.",
                max_length=63,
            ),
            preserve_default=False,
        ),
    ]
