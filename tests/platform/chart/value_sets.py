"""Ten sets of values that Setpoint's chart is rendered, checked and installed with."""

from __future__ import annotations

from typing import Any

URL = "https://setpoint.example.com"
MINIMAL: dict[str, Any] = {"url": URL}
EXTERNAL: dict[str, Any] = {
    "enabled": True,
    "storeName": "vault",
    "entry": "setpoint/keys",
    "helmEntry": "setpoint/helm",
    "ownerEntry": "setpoint/owner",
}
HIGHLY_AVAILABLE: dict[str, Any] = {
    "url": URL,
    "web": {"replicas": 3, "autoscaling": {"enabled": True, "minReplicas": 3, "maxReplicas": 9}},
    "worker": {"replicas": 4},
    "helm": {"replicas": 3},
    "gpus": {"replicas": 2},
    "beat": {"replicas": 2},
    "watch": {"replicas": 3},
    "pods": {"priorityClassName": "system-cluster-critical", "scratchSize": "2Gi"},
    "secrets": {"owner": {"existing": "setpoint-owner"}},
    "backup": {"enabled": True, "claim": "backups", "keep": 30},
}
CLOUD_NATIVE_PG: dict[str, Any] = {
    "url": URL,
    "database": {
        "cloudNativePG": {
            "enabled": True,
            "imageName": "registry.example/postgresql:17",
            "storageClass": "fast",
            "parameters": {"max_connections": "200"},
            "applicationSecret": "setpoint-application",
            "backup": {"retentionPolicy": "30d"},
        }
    },
}
OWN_SECRET: dict[str, Any] = {
    "url": f"{URL}:8443",
    "hosts": ["setpoint.internal"],
    "secrets": {
        "existing": "platform-keys",
        "keys": {
            "SETPOINT_SECRET_KEY": "secret.key",
            "SETPOINT_DATABASE_URL": "database-url",
            "SETPOINT_METRICS_TOKEN": "metrics-token",
            "SETPOINT_MAIL_USER": "mail-user",
            "SETPOINT_MAIL_PASSWORD": "mail-password",
            "SETPOINT_OIDC_CORP_CLIENT_SECRET": "oidc-corp",
        },
        "helm": {"existing": "helm-keys", "key": "key"},
        "owner": {"existing": "owner-keys", "databaseKey": "owner-url", "applicationKey": "application-url"},
    },
    "settings": {
        "SETPOINT_MAIL_HOST": "mail.example.com",
        "SETPOINT_MAIL_PORT": 2525,
        "SETPOINT_GPU_BAND_DAYS": 1000000,
        "SETPOINT_LEASE_SECONDS": 30.5,
        "SETPOINT_LOG_LEVEL": "DEBUG",
        "SETPOINT_LOCAL_ACCOUNTS": "emergency@example.com",
        "SETPOINT_OIDC_PROVIDERS": "corp",
        "SETPOINT_OIDC_CORP_ISSUER": "https://id.example.com/realms/corp",
        "SETPOINT_OIDC_CORP_CLIENT_ID": "setpoint",
        "SETPOINT_OIDC_CORP_ROLES": '[{"group": "gpu-admins", "role": "admin", "scope": "*"}]',
        "SETPOINT_SAML_PROVIDERS": "partner",
        "SETPOINT_SAML_PARTNER_ENTITY_ID": "https://idp.example.com/metadata",
        "SETPOINT_SAML_PARTNER_SSO_URL": "https://idp.example.com/sso",
        "SETPOINT_SAML_PARTNER_CERTIFICATES": "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----",
        "SETPOINT_SAML_PARTNER_ROLES": '[{"group": "gpu-viewers", "role": "viewer", "scope": "*"}]',
    },
}
EXTERNAL_SECRETS: dict[str, Any] = {
    "url": URL,
    "secrets": {
        "external": EXTERNAL,
        "owner": {"existing": "setpoint-owner"},
        "keys": {"SETPOINT_METRICS_TOKEN": "SETPOINT_METRICS_TOKEN"},
    },
}
INGRESS: dict[str, Any] = {
    "url": URL,
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "tlsSecret": "setpoint-tls",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "1m"},
    },
    "networkPolicy": {
        "webFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}],
        "dns": {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}]},
        "database": {"to": [{"ipBlock": {"cidr": "10.20.0.0/24"}}], "port": 6432},
        "clusters": {"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.66.0.0/16"]}}], "ports": [6443]},
        "charts": {"ports": []},
        "extraEgress": [{"ports": [{"protocol": "TCP", "port": 601}], "to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}]}],
    },
}
GATEWAY: dict[str, Any] = {
    "url": URL,
    "gateway": {"enabled": True, "parentRefs": [{"name": "public", "namespace": "gateways", "sectionName": "https"}]},
    "networkPolicy": {"enabled": False},
}
PRIVATE_REGISTRY: dict[str, Any] = {
    "url": "http://127.0.0.1:8000",
    "image": {
        "registry": "registry.example:5000/platform/",
        "digest": "sha256:" + "0a" * 32,
        "pullPolicy": "Always",
        "pullSecrets": ["registry-token"],
    },
    "helm": {"replicas": 0},
    "gpus": {"replicas": 0},
    "broker": {"bundled": {"enabled": True, "image": "registry.example:5000/valkey:8", "program": "valkey-server"}},
}
EVERYTHING: dict[str, Any] = {
    **HIGHLY_AVAILABLE,
    "fullnameOverride": "tuning",
    "labels": {"team": "platform"},
    "proxies": 2,
    "paused": True,
    "secrets": {"external": EXTERNAL, "keys": {"SETPOINT_METRICS_TOKEN": "SETPOINT_METRICS_TOKEN"}},
    "database": CLOUD_NATIVE_PG["database"],
    "broker": {"bundled": {"enabled": True}},
    "gateway": {**GATEWAY["gateway"], "annotations": {"a": "b"}},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "30s"},
    "service": {"type": "LoadBalancer", "port": 8080, "annotations": {"a": "b"}},
    "serviceAccount": {"annotations": {"a": "b"}},
    "migrations": {"deadlineSeconds": 7200},
    "pods": {
        "annotations": {"a": "b"},
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "control", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "hostAliases": [{"ip": "10.1.2.3", "hostnames": ["db.internal"]}],
        "extraVolumes": [{"name": "authority", "configMap": {"name": "database-ca"}}],
        "extraVolumeMounts": [{"name": "authority", "mountPath": "/etc/authority", "readOnly": True}],
    },
}
VALUE_SETS: dict[str, dict[str, Any]] = {
    "minimal": MINIMAL,
    "highly-available": HIGHLY_AVAILABLE,
    "cloudnativepg": CLOUD_NATIVE_PG,
    "own-secret": OWN_SECRET,
    "external-secrets": EXTERNAL_SECRETS,
    "ingress": INGRESS,
    "gateway": GATEWAY,
    "private-registry": PRIVATE_REGISTRY,
    "bundled-broker": {**MINIMAL, "broker": {"bundled": {"enabled": True}}},
    "no-broker": {**MINIMAL, "broker": {"enabled": False}},
    "everything": EVERYTHING,
}
