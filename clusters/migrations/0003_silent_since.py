from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusters", "0002_days_and_name_prefix")]

    operations = [
        migrations.RemoveField(model_name="nodetuning", name="lease_renewed_at"),
        migrations.AddField(
            model_name="nodetuning",
            name="silent_since",
            field=models.DateTimeField(
                help_text="When the agent was last heard, once that is too long ago; null while it is heard.", null=True
            ),
        ),
    ]
