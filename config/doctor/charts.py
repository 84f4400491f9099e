"""Checks of chart archives: those that plans and rollouts need are stored, and all are the bytes that they claim."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

from django.conf import settings
from django.db.models import Q

from components.helm import process
from components.helm.errors import HelmMissing
from components.models import Archive
from config.doctor.findings import Finding, ok, problem
from jobs.models import Plan, PlanComponent, Rollout

CHARTS = "charts"
OPEN = (Plan.Status.DRAFT, Plan.Status.REVIEW, Plan.Status.CHANGES, Plan.Status.APPROVED)


def charts() -> Iterator[Finding]:
    stored = 0
    digests: set[str] = set()
    for archive in Archive.objects.order_by("pk").iterator(chunk_size=1):  # each may have megabytes
        stored += 1
        digests.add(archive.sha256)
        if hashlib.sha256(bytes(archive.content)).hexdigest() != archive.sha256:
            yield problem(
                CHARTS,
                f"The stored archive of {archive} is not the one that its SHA-256 names.",
                "Its row was changed: restore a backup. No plan that names it installs it.",
            )
    is_needed = Q(plan__status__in=OPEN) | Q(plan__rollout__status__in=Rollout.LIVE)
    needed = PlanComponent.objects.filter(is_needed).exclude(archive="").exclude(archive__in=digests)
    for component in needed.select_related("plan").defer("prepared").distinct():
        yield problem(
            CHARTS,
            f"The chart archive that plan {component.plan} needs for {component} is not stored.",
            "Upload it again, or make a new plan.",
        )
    yield ok(CHARTS, f"{stored} chart archives are stored.")


def helm() -> Iterator[Finding]:
    """Look for the program where helm runs: other processes may be without it."""
    try:
        where = process.find_program(settings.SETPOINT_HELM, os.environ)
    except HelmMissing as error:
        if settings.EMBEDDED or settings.SETPOINT_HELM_CREDENTIAL_KEYS:
            yield problem(CHARTS, f"Components cannot be installed: {error}.", "Install helm v3.17 or newer, or v4.")
    else:
        yield ok(CHARTS, f"helm is {where}.")
