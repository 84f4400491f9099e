from typing import Any

from django.db import migrations, models

BUILT_IN = "settings that weaken security"


def seed(apps: Any, schema_editor: Any) -> None:
    """Settings that weaken security ask for another approver, from the first day on."""
    rules = apps.get_model("jobs", "ApprovalRule")
    rules.objects.get_or_create(name=BUILT_IN, defaults={"weakens_security": True, "approvers": 2})


class Migration(migrations.Migration):
    dependencies = [("jobs", "0011_blast_of_components")]

    operations = [
        migrations.AddField(
            model_name="approvalrule",
            name="gpus",
            field=models.PositiveIntegerField(help_text="At least so many GPUs out of service.", null=True),
        ),
        migrations.AddField(
            model_name="approvalrule",
            name="gpu_jobs",
            field=models.PositiveIntegerField(help_text="At least so many GPU jobs interrupted.", null=True),
        ),
        migrations.AddField(
            model_name="approvalrule",
            name="namespace",
            field=models.CharField(
                blank=True, help_text="GPU jobs of this namespace are interrupted.", max_length=63
            ),
        ),
        migrations.AddField(
            model_name="approvalrule",
            name="component",
            field=models.CharField(blank=True, help_text="This component is changed.", max_length=63),
        ),
        migrations.AddField(
            model_name="approvalrule",
            name="weakens_security",
            field=models.BooleanField(default=False, help_text="Only plans that weaken the security of a node."),
        ),
        migrations.RunPython(seed, migrations.RunPython.noop),
    ]
