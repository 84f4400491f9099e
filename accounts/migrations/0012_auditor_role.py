from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0011_break_glass'),
    ]

    operations = [
        migrations.AlterField(
            model_name='rolebinding',
            name='role',
            field=models.CharField(choices=[('viewer', 'Viewer'), ('operator', 'Operator'), ('approver', 'Approver'), ('admin', 'Admin'), ('break-glass', 'Break-glass'), ('auditor', 'Auditor')], max_length=11),
        ),
    ]
