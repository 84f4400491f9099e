from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("jobs", "0006_policies")]

    operations = [
        migrations.AddField(
            model_name="step",
            name="looks",
            field=models.PositiveSmallIntegerField(
                default=0,
                help_text="Of a component: how many looks in a row found it as wanted, where one is not enough.",
            ),
        ),
        migrations.AddField(
            model_name="approval",
            name="consent",
            field=models.CharField(
                blank=True,
                default="",
                help_text="What was typed to let the plan destroy objects; empty: it destroys none.",
                max_length=200,
            ),
            preserve_default=False,
        ),
    ]
