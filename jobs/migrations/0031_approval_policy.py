import common.clock
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('jobs', '0030_break_glass'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='approval',
            name='policy',
            field=models.PositiveIntegerField(help_text='Number of the policy version then active; null: none.', null=True),
        ),
        migrations.CreateModel(
            name='PolicyVersion',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('mac', models.CharField(blank=True, db_default='', default='', editable=False, help_text='The mark of the process that wrote it.', max_length=64)),
                ('number', models.PositiveIntegerField(unique=True)),
                ('text', models.TextField(help_text='YAML: time zone and rules.')),
                ('message', models.CharField(help_text="Why, in the proposer's words.", max_length=300)),
                ('proposed_at', models.DateTimeField(default=common.clock.now)),
                ('activated_at', models.DateTimeField(null=True)),
                ('is_active', models.BooleanField(default=False)),
                ('retired_at', models.DateTimeField(help_text='When the next version took its place.', null=True)),
                ('activated_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('proposed_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-number'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('is_active', True)), fields=('is_active',), name='one_active_policy'), models.CheckConstraint(condition=models.Q(('activated_by', None), models.Q(('activated_by', models.F('proposed_by')), _negated=True), _connector='OR'), name='another_activates_a_policy')],
            },
        ),
    ]
