from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0010_workload_identity'),
    ]

    operations = [
        migrations.AlterField(
            model_name='rolebinding',
            name='role',
            field=models.CharField(choices=[('viewer', 'Viewer'), ('operator', 'Operator'), ('approver', 'Approver'), ('admin', 'Admin'), ('auditor', 'Auditor')], max_length=10),
        ),
    ]
