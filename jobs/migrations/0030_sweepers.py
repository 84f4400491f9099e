from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("jobs", "0027_calendar_rules"),
    ]

    operations = [
        migrations.CreateModel(
            name="Sweeper",
            fields=[
                ("queue", models.CharField(max_length=40, primary_key=True, serialize=False)),
                (
                    "delivered_at",
                    models.DateTimeField(help_text="The last sweep that came over the broker.", null=True),
                ),
                ("owner", models.CharField(blank=True, max_length=120)),
                ("since", models.DateTimeField(help_text="Since when workers sweep by themselves.", null=True)),
                ("lease_until", models.DateTimeField(null=True)),
            ],
        ),
    ]
