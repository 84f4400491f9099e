import common.clock
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('clusters', '0004_node_driver_upgrade'),
    ]

    operations = [
        migrations.CreateModel(
            name='GpuDevice',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('uuid', models.CharField(help_text="The vendor's, of the whole GPU, also for an instance.", max_length=80)),
                ('instance', models.CharField(blank=True, help_text="MIG's GPU instance id; empty: the whole GPU.", max_length=20)),
                ('is_board', models.BooleanField(default=False, help_text='A GPU that MIG splits: nobody holds it as a whole.')),
                ('node_name', models.CharField(blank=True, max_length=253)),
                ('index', models.CharField(blank=True, help_text='The number that tools on the node show.', max_length=20)),
                ('model', models.CharField(blank=True, max_length=120)),
                ('profile', models.CharField(blank=True, help_text='MIG profile such as 3g.40gb.', max_length=40)),
                ('driver', models.CharField(blank=True, max_length=40)),
                ('values', models.JSONField(default=dict, help_text='{gpus.samples.Metric: number}')),
                ('holders', models.JSONField(default=list, help_text='[[namespace, pod, container]], sorted; empty: free.')),
                ('held_since', models.DateTimeField(help_text='When these holders were first seen; null while it is free.', null=True)),
                ('xids', models.JSONField(default=list, help_text='[[code, count, gpus.samples.XidEvidence]]')),
                ('clock_events', models.JSONField(help_text="{reason: count in the exporter's window}; null: not exported.", null=True)),
                ('is_suspect', models.BooleanField(default=False, help_text='Utilisation and profiling contradict each other.')),
                ('first_seen_at', models.DateTimeField(default=common.clock.now)),
                ('seen_at', models.DateTimeField(default=common.clock.now, help_text='When the stored sample was read.')),
                ('missing_since', models.DateTimeField(help_text='The first reading that lacked it; null: in the last one.', null=True)),
                ('cluster', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='gpu_devices', to='clusters.cluster')),
                ('node', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='gpu_devices', to='clusters.node')),
            ],
            options={
                'ordering': ['cluster', 'node_name', 'index', 'instance'],
                'indexes': [models.Index(fields=['cluster', 'node_name'], name='gpus_gpudev_cluster_e45f10_idx'), models.Index(condition=models.Q(('missing_since', None), _negated=True), fields=['cluster', 'missing_since'], name='gpus_missing')],
                'constraints': [models.UniqueConstraint(fields=('cluster', 'uuid', 'instance'), name='one_row_per_gpu')],
            },
        ),
        migrations.CreateModel(
            name='TelemetrySource',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('is_enabled', models.BooleanField(default=True, help_text='A source that is not enabled is never asked.')),
                ('kind', models.CharField(choices=[('exporters', 'Exporters, found by their labels'), ('service', 'Prometheus in the cluster'), ('prometheus', 'Prometheus at an address')], default='exporters', max_length=10)),
                ('namespace', models.CharField(blank=True, help_text="Only exporters' pods of this namespace; empty: of all.", max_length=63)),
                ('url', models.CharField(blank=True, help_text='https://… of a Prometheus, without /api/v1.', max_length=500)),
                ('service', models.CharField(blank=True, help_text="namespace/name:port of Prometheus' service, or namespace/https:name:port.", max_length=200)),
                ('selector', models.CharField(blank=True, help_text='Label matchers, such as cluster="a", where Prometheus serves several.', max_length=200)),
                ('auth', models.CharField(choices=[('none', 'None'), ('bearer', 'Bearer token'), ('basic', 'User name and password'), ('certificate', 'Client certificate')], default='none', max_length=11)),
                ('username', models.CharField(blank=True, max_length=200)),
                ('certificate', models.TextField(blank=True, help_text='Client certificate as PEM.')),
                ('ca', models.TextField(blank=True, help_text="PEM; empty: the machine's trusted roots.")),
                ('secret', models.BinaryField(default=b'')),
                ('secret_key', models.CharField(blank=True, max_length=16)),
                ('version', models.PositiveIntegerField(default=1, help_text='Counts every save by a person; the ETag.')),
                ('changed_by', models.CharField(blank=True, max_length=150)),
                ('changed_at', models.DateTimeField(default=common.clock.now)),
                ('state', models.CharField(choices=[('never', 'Not read yet'), ('well', 'Read'), ('partly', 'Read in part'), ('empty', 'No GPUs found'), ('failed', 'Not read')], default='never', max_length=10)),
                ('sentence', models.CharField(blank=True, help_text='What is wrong, or empty.', max_length=500)),
                ('since', models.DateTimeField(default=common.clock.now, help_text='When `state` last changed.')),
                ('tried_at', models.DateTimeField(help_text='When a reading last ended, however it ended.', null=True)),
                ('read_at', models.DateTimeField(help_text='When devices were last read: their age.', null=True)),
                ('milliseconds', models.PositiveIntegerField(default=0, help_text='What the last reading took, storing included.')),
                ('series', models.PositiveIntegerField(default=0)),
                ('devices', models.PositiveIntegerField(default=0, help_text='That pods can hold, in the last reading.')),
                ('asked', models.PositiveIntegerField(default=0, help_text='Exporters, or queries, of the last reading.')),
                ('unanswered', models.PositiveIntegerField(default=0, help_text='Of those, how many gave nothing.')),
                ('reasons', models.JSONField(default=list, help_text='[what was asked, why it gave nothing], a few of them.')),
                ('skew_seconds', models.FloatField(help_text="Prometheus' clock minus ours; null where nobody said.", null=True)),
                ('findings', models.JSONField(default=list, help_text='[gpus.samples.Code, count, example]')),
                ('generations', models.JSONField(default=list, help_text='gpus.samples.Generation')),
                ('honor_labels', models.CharField(default='unknown', help_text='gpus.samples.HonorLabels', max_length=10)),
                ('has_profiling', models.BooleanField(default=False)),
                ('exporter_versions', models.JSONField(default=list)),
                ('ticks', models.PositiveBigIntegerField(default=0, help_text='Readings that ended.')),
                ('failures', models.PositiveBigIntegerField(default=0, help_text='Of those, that read nothing.')),
                ('dropped', models.PositiveBigIntegerField(default=0, help_text='Series that were left out, of all readings.')),
                ('due_at', models.DateTimeField(default=common.clock.now)),
                ('claimed_until', models.DateTimeField(null=True)),
                ('cluster', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, related_name='telemetry', to='clusters.cluster')),
            ],
            options={
                'ordering': ['cluster__name'],
                'indexes': [models.Index(fields=['due_at'], name='gpus_teleme_due_at_f291b5_idx')],
            },
        ),
    ]
