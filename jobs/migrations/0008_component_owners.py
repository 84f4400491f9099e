import django.db.models.deletion
from django.db import migrations, models

import common.clock


class Migration(migrations.Migration):
    dependencies = [("clusters", "0004_node_driver_upgrade"), ("jobs", "0007_looks_and_consent")]

    operations = [
        migrations.CreateModel(
            name="ComponentOwner",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("component", models.CharField(help_text="Its name in the catalogue.", max_length=63)),
                ("since", models.DateTimeField(default=common.clock.now)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="clusters.cluster"
                    ),
                ),
                (
                    "pool",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="clusters.pool"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("cluster", "component"), name="one_owner_per_component")
                ],
            },
        ),
    ]
