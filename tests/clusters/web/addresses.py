"""Addresses of pages of clusters, and a kubeconfig of the simulated one."""

from __future__ import annotations

from django.urls import reverse

URL = "https://atlas.example:6443"
KUBECONFIG = f"""apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{URL}"}}}}]
users: [{{name: u, user: {{token: s3cret}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
"""


def at(name, *args):
    return reverse(f"clusters:{name}", args=args)
