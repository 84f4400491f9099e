from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('notices', '0003_kinds_of_channels'),
    ]

    operations = [
        migrations.CreateModel(
            name='Forwarding',
            fields=[
                ('name', models.CharField(max_length=40, primary_key=True, serialize=False)),
                ('cursor', models.CharField(help_text='Of audit.following: behind the last acknowledged record.', max_length=40)),
                ('claimed_until', models.DateTimeField(null=True)),
                ('rests_until', models.DateTimeField(help_text='After a failure nothing is tried before then.', null=True)),
                ('failures', models.PositiveIntegerField(default=0, help_text='One after the other; 0: the last batch arrived.')),
                ('failing_since', models.DateTimeField(null=True)),
                ('error', models.CharField(blank=True, max_length=500)),
                ('sent_at', models.DateTimeField(help_text='When something last arrived.', null=True)),
                ('rejected', models.PositiveBigIntegerField(default=0, help_text='Records that an OTLP receiver refused for good.')),
                ('rejection', models.CharField(blank=True, help_text='Which the last ones were, and why.', max_length=500)),
                ('restarts', models.PositiveIntegerField(default=0, help_text='How often it began again because the chain was another one than before.')),
            ],
            options={
                'ordering': ['name'],
            },
        ),
    ]
