from django.db import migrations


def forget_versions(apps, schema_editor):
    """Let the next list of pods replace each row: it has their roles, and the groups that share GPUs."""
    apps.get_model("clusters", "GpuPod").objects.update(resource_version="")


class Migration(migrations.Migration):

    dependencies = [
        ("clusters", "0023_roles_of_pods"),
    ]

    operations = [
        migrations.RunPython(forget_versions, migrations.RunPython.noop),
    ]
