"""Alert rules on clusters' credentials, evaluated by `notices`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from django.urls import reverse

from clusters.connection import expiry
from clusters.models import Cluster
from common.alerting import AlertCondition, AlertRule, RuleResult, Severity, SubjectKind, Threshold

REFUSED, EXPIRING = "credential-refused", "credential-expiring"
MEND = "Replace the credential on the cluster's page; waiting rollouts continue automatically."


def rules() -> Iterable[AlertRule]:
    yield AlertRule(
        REFUSED,
        "Credential refused",
        "An API server refuses the credential that is stored for it, or shows a certificate that is not trusted"
        "{lasting}. Rollouts wait meanwhile, with their nodes as they are.",
        Severity.CRITICAL,
        refused,
        closes_after=timedelta(0),
        order=66,
    )
    yield AlertRule(
        EXPIRING,
        "Credential expires",
        "A token or certificate ends in less than {limit} and does not renew itself, or its renewal is late{lasting}.",
        Severity.WARNING,
        ends,
        closes_after=timedelta(0),
        threshold=Threshold(expiry.SOON.days, 1, 365, "days", "before its end at which a credential is reported"),
        order=68,
    )


def refused(cluster_id: UUID, _threshold: float) -> RuleResult:
    cluster = Cluster.objects.filter(pk=cluster_id, refused_since__isnull=False).first()
    if cluster is None:
        return RuleResult()
    sentence = f"{cluster} refuses Setpoint's credential: {cluster.reach_reason}"
    return RuleResult([_condition(cluster, str(cluster.pk), sentence)])


def ends(cluster_id: UUID, threshold: float) -> RuleResult:
    endings_by_cluster = expiry.of_clusters(Cluster.objects.filter(pk=cluster_id))
    within = timedelta(days=threshold)
    return RuleResult(
        [
            _condition(cluster, f"{cluster.pk}/{ending.what}", ending.sentence)
            for cluster, endings in endings_by_cluster.items()
            for ending in endings
            if ending.is_due(within)
        ]
    )


def _condition(cluster: Cluster, subject: str, sentence: str) -> AlertCondition:
    link = reverse("clusters:cluster", args=[cluster.pk])
    since = cluster.refused_since if subject == str(cluster.pk) else None
    return AlertCondition(SubjectKind.CLUSTER, subject, str(cluster), sentence, mend=MEND, link=link, since=since)
