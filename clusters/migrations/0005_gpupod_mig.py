from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusters", "0004_node_driver_upgrade")]

    operations = [
        migrations.AddField(
            model_name="gpupod",
            name="mig",
            field=models.JSONField(default=dict, help_text="Of `gpus`, MIG instances by profile."),
        ),
    ]
