"""All settings, in one file. Embedded, demo and production differ by SETPOINT_* variables only: docs/operating.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from config import env, forwarding, logs, oidc, private, saml
from contract import names
from jobs.diffs.changes import Disruption

BASE_DIR = Path(__file__).resolve().parent.parent
VAR = Path(env.text("SETPOINT_VAR", str(BASE_DIR / "var")))
"""Where an embedded installation keeps its database and keys."""
private.keep(VAR)

VERSION = names.RELEASE

# ── Process ───────────────────────────────────────────────────────────────────────────────────────────────────────────
DEBUG = env.flag("SETPOINT_DEBUG")
EMBEDDED = env.flag("SETPOINT_EMBEDDED", default=True)
"""One process with an in-memory broker. False: Celery workers on Redis, several web processes."""
SECRET_KEY = env.secret("SETPOINT_SECRET_KEY", VAR / "secret.key")
ALLOWED_HOSTS = env.words("SETPOINT_HOSTS", "127.0.0.1,localhost,[::1]")
CSRF_TRUSTED_ORIGINS = env.words("SETPOINT_TRUSTED_ORIGINS")
BASE_URL = env.text("SETPOINT_URL", "http://127.0.0.1:8000")
IS_HTTPS = BASE_URL.startswith("https://")
SETPOINT_PROXIES = env.integer("SETPOINT_PROXIES", 0)
"""Reverse proxies in front, whose X-Forwarded-For and X-Forwarded-Proto are believed; with 0 neither is read."""
if SETPOINT_PROXIES:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024
DATA_UPLOAD_MAX_NUMBER_FIELDS = 4000  # a profile's form has four for each of at most 256 settings, and marks
"""Bytes of a body; config.middleware refuses more by its Content-Length, for JSON too."""
SETPOINT_METRICS_TOKEN = env.text("SETPOINT_METRICS_TOKEN")
"""Bearer token for /metrics. Without one, /metrics answers only direct connections from this machine."""
SETPOINT_WORKER_THREADS = env.integer("SETPOINT_WORKER_THREADS", 4, least=1)
SETPOINT_WEB_THREADS = env.integer("SETPOINT_WEB_THREADS", 8, least=1)
"""Both of the embedded server only."""

LOGGING = logs.configuration(env.text("SETPOINT_LOG_LEVEL", "INFO").upper(), env.text("SETPOINT_LOG_FORMAT", "json"))

INSTALLED_APPS = [
    "config",
    "gpus",
    "notices",
    "jobs",
    "compliance",
    "components",
    "clusters",
    "profiles",
    "accounts",
    "audit",
    "common",
    "allauth.account",
    "allauth.socialaccount",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "django_filters",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
]

MIDDLEWARE = [
    "config.middleware.request_context",
    "config.middleware.security_headers",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "config.middleware.limits",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "config.middleware.address_ranges",
    "config.middleware.session_use",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "config.middleware.ended_sessions",
    "config.middleware.second_factor",
    "config.middleware.RoleGate",
    "config.middleware.held_catalog",
    "config.errors.ErrorAnswers",
    "allauth.account.middleware.AccountMiddleware",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "config.context.frame",
            ],
            "builtins": ["django.templatetags.static", "common.templatetags.setpoint", "common.templatetags.charts"],
        },
    }
]

# ── Database ──────────────────────────────────────────────────────────────────────────────────────────────────────────
DATABASES = {"default": env.database("SETPOINT_DATABASE_URL", f"sqlite:///{VAR / 'setpoint.sqlite3'}")}
env.pooler("SETPOINT_DATABASE_POOLER", DATABASES["default"])
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    private.keep_sqlite(Path(DATABASES["default"]["NAME"]))
SETPOINT_APPLICATION_DATABASE = (
    env.database("SETPOINT_APPLICATION_DATABASE_URL", "") if env.text("SETPOINT_APPLICATION_DATABASE_URL") else {}
)
"""For what migrates only: how all else connects. `migrate` leaves that role what it needs (audit.database_roles)."""
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# ── People ────────────────────────────────────────────────────────────────────────────────────────────────────────────
AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["accounts.backends.WithRoles"]
LOGIN_URL = "accounts:login"
LOGIN_REDIRECT_URL = "/"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = IS_HTTPS
SESSION_ENGINE = "accounts.access.session_store"
SESSION_COOKIE_AGE = 12 * 3600
CSRF_FAILURE_VIEW = "config.errors.csrf_failure"
SETPOINT_TOKEN_PEPPER = env.secret("SETPOINT_TOKEN_PEPPER", VAR / "token.pepper")
"""Mixed into the hashes of API tokens; changing it ends every token."""
SETPOINT_OIDC = oidc.providers(env.words("SETPOINT_OIDC_PROVIDERS"))
"""Providers of single sign-on and what their groups may do: the operator's word, which no page or token changes."""
SETPOINT_SAML = saml.providers(env.words("SETPOINT_SAML_PROVIDERS"), beside=SETPOINT_OIDC)
"""The same, of those with SAML 2.0."""
SETPOINT_LOCAL_ACCOUNTS = oidc.local_accounts(env.words("SETPOINT_LOCAL_ACCOUNTS"), (*SETPOINT_OIDC, *SETPOINT_SAML))
"""Local accounts that alone may log in with a password, for emergencies; empty: every local account."""
SETPOINT_STEP_UP = env.one_of("SETPOINT_STEP_UP", tuple(Disruption))
"""Approving a plan that is so disruptive, or more, takes a log-in of the last minutes; empty: none does."""
SETPOINT_STEP_UP_MINUTES = env.integer("SETPOINT_STEP_UP_MINUTES", 15, least=1)
SETPOINT_BREAK_GLASS_CLASS = env.one_of("SETPOINT_BREAK_GLASS_CLASS", tuple(Disruption))
"""The worst class of plans that people with the role break-glass start without approval; empty: it is off."""
SETPOINT_BREAK_GLASS_HOURS = env.integer("SETPOINT_BREAK_GLASS_HOURS", 4, least=1)
"""So long after such a start the rollout may begin, and windows do not hold it."""
SETPOINT_BREAK_GLASS_REVIEW_HOURS = env.integer("SETPOINT_BREAK_GLASS_REVIEW_HOURS", 48, least=1)
"""So long after it two approvers have to review it."""
SETPOINT_BREAK_GLASS_PER_DAY = env.integer("SETPOINT_BREAK_GLASS_PER_DAY", 3, least=1)
"""So many starts in any 24 hours, by all people in all clusters together."""
SETPOINT_SECOND_FACTOR = env.some_of("SETPOINT_SECOND_FACTOR", oidc.ROLES)
"""Roles whose people set up a second factor before anything else works in their browser; empty: each person decides."""
SETPOINT_POWER_NETWORKS = env.networks("SETPOINT_POWER_NETWORKS")
"""Address ranges that administrators, approvers, operators and break-glass are accepted from; empty: any."""
SOCIALACCOUNT_ADAPTER = "accounts.signon.exchange.Adapter"
SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True}}
SOCIALACCOUNT_STORE_TOKENS = False
"""What a provider gives is used during the log-in, and stored nowhere."""
SECURE_REFERRER_POLICY = "same-origin"
SECURE_HSTS_SECONDS = 30 * 24 * 3600 if IS_HTTPS else 0
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# ── Time and words ────────────────────────────────────────────────────────────────────────────────────────────────────
LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

# ── Static files ──────────────────────────────────────────────────────────────────────────────────────────────────────
STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_ALLOW_ALL_ORIGINS = False
WHITENOISE_USE_FINDERS = EMBEDDED
"""Embedded, files are served from where they lie; an image has them collected."""
if EMBEDDED:
    STATIC_ROOT.mkdir(exist_ok=True)

# ── Celery: an alarm clock, see jobs.tasks ────────────────────────────────────────────────────────────────────────────
CELERY_BROKER_URL = env.broker(
    "SETPOINT_BROKER_URL",
    "memory://localhost/" if EMBEDDED else "redis://127.0.0.1:6379/0",
    master="SETPOINT_BROKER_MASTER",
)
SETPOINT_HAS_BROKER = EMBEDDED or CELERY_BROKER_URL != "none"
"""False: messages stay in the process, and workers find what is due in the database (config.standby)."""
if CELERY_BROKER_URL == "none":
    CELERY_BROKER_URL = "memory://localhost/"
SETPOINT_STANDBY_ALIVE = env.text("SETPOINT_STANDBY_ALIVE")
"""Touched by each worker with every look: without a broker `celery inspect`, and checks that use it, do not work."""
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
"""A worker or beat waits for its broker as long as it takes; Celery's default gives up after 50 minutes."""
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = False
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = (
    {"polling_interval": 0.02} if EMBEDDED else {"socket_timeout": 5, "socket_connect_timeout": 5}
)
if master := env.text("SETPOINT_BROKER_MASTER"):
    CELERY_BROKER_TRANSPORT_OPTIONS["master_name"] = master
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
CELERY_TASK_ROUTES = {
    "jobs.tasks.helm": {"queue": "helm"},
    "gpus.tasks.check_gates": {"queue": "celery"},
    "gpus.tasks.guard": {"queue": "celery"},
    "gpus.tasks.*": {"queue": "gpus"},
}
"""The first that fits counts. helm takes minutes, and a reading of GPUs seconds of computing: with queues and processes
of their own they delay no steps. A rollout's next batch waits for its gates, which read rows."""

# ── The engine ────────────────────────────────────────────────────────────────────────────────────────────────────────
SETPOINT_INSTALLATION = env.secret("SETPOINT_INSTALLATION", VAR / "installation.id")[:40]
SETPOINT_CALL_TIMEOUT_SECONDS = env.seconds("SETPOINT_CALL_TIMEOUT_SECONDS", 10)
SETPOINT_LEASE_SECONDS = env.seconds(
    "SETPOINT_LEASE_SECONDS", 30, twice="SETPOINT_CALL_TIMEOUT_SECONDS", than=SETPOINT_CALL_TIMEOUT_SECONDS
)
"""How long a killed worker's steps wait before another takes them. No call begins that its lease may not outlast, so
with a lease as short as a call nothing would ever be written."""
SETPOINT_SWEEP_SECONDS = env.seconds("SETPOINT_SWEEP_SECONDS", 5)
SETPOINT_FRESH_SECONDS = env.seconds("SETPOINT_FRESH_SECONDS", 30)
"""Rows older than this are not decided upon: the object itself is read (law 11)."""
SETPOINT_PLAN_FRESH_SECONDS = env.seconds("SETPOINT_PLAN_FRESH_SECONDS", 300)
"""A plan over observations older than this is refused."""
SETPOINT_PLAN_EXPIRY_HOURS = env.integer("SETPOINT_PLAN_EXPIRY_HOURS", 72, least=1)
SETPOINT_REMIND_HOURS = env.integer("SETPOINT_REMIND_HOURS", 24, least=1)
"""How long a plan waits for approval before, and between, reminders."""
SETPOINT_REVERT_DAYS = env.integer("SETPOINT_REVERT_DAYS", 7)
SETPOINT_PARALLEL_CALLS = env.integer("SETPOINT_PARALLEL_CALLS", 16, least=1)
"""Calls to one API server at once; 16 saturated it on 2 cores, more gained nothing (docs/performance.md)."""
SETPOINT_HELM_SECONDS = env.seconds("SETPOINT_HELM_SECONDS", 900)
"""How long one component's helm may take, tries after a failure included."""
SETPOINT_READY_SECONDS = env.seconds("SETPOINT_READY_SECONDS", 1800)
"""How long a component may take to get ready after helm: drivers are compiled and images of gigabytes pulled."""
SETPOINT_WAIT_HOURS = env.integer("SETPOINT_WAIT_HOURS", 24, least=1)
"""How long something may wait for a decision or for a place before it gives up by itself (law 4)."""
SETPOINT_AGENT_SILENT_SECONDS = env.seconds("SETPOINT_AGENT_SILENT_SECONDS", 180)
"""An agent whose Lease is older is not trusted: three renewals of 60 s missed."""

SETPOINT_COMPLIANCE_HISTORY_DAYS = env.integer("SETPOINT_COMPLIANCE_HISTORY_DAYS", 90, least=1)
"""How long changes of settings are kept: what drifted when, and what won."""
SETPOINT_GPU_SECONDS = env.seconds("SETPOINT_GPU_SECONDS", 30)
"""Between two readings of a cluster's GPU telemetry: as often as exporters collect."""
SETPOINT_GPU_BUCKET_DAYS = env.integer("SETPOINT_GPU_BUCKET_DAYS", 3, least=1)
"""How long five minutes of each GPU, and of the state bands, are kept."""
SETPOINT_GPU_HOUR_DAYS = env.integer("SETPOINT_GPU_HOUR_DAYS", 35, least=1)
"""How long hours of each GPU, and of each node's state bands, are kept."""
SETPOINT_GPU_BAND_DAYS = env.integer("SETPOINT_GPU_BAND_DAYS", 730, least=1)
"""How long hours of the state bands of clusters, pools, models and namespaces are kept."""
SETPOINT_GPU_IDLE_MINUTES = env.integer("SETPOINT_GPU_IDLE_MINUTES", 30, least=1)
"""A pod whose GPUs have done nothing for so long holds them idle; before, it may be loading."""
SETPOINT_GPU_PRICES = env.prices("SETPOINT_GPU_PRICES")
"""Of a GPU-hour, by the product as nodes are labeled: NVIDIA-H100-80GB-HBM3=2.40; without one no cost is shown."""
SETPOINT_GPU_CURRENCY = env.text("SETPOINT_GPU_CURRENCY", "USD")[:8]
SETPOINT_GPU_STEP_METRICS = env.metric_names("SETPOINT_GPU_STEP_METRICS")
"""Metrics in which the site's trainers export their step, beside those that are known."""
SETPOINT_STUDY_HOURS = env.integer("SETPOINT_STUDY_HOURS", 6, least=1)
"""How long the GPUs of a node are compared, before and after its change: a working day has ups and downs of hours."""
SETPOINT_STUDY_SETTLE_MINUTES = env.integer("SETPOINT_STUDY_SETTLE_MINUTES", 15)
"""After a node's change before its GPUs are compared: jobs start, caches fill, clocks rise."""

# ── Notices ───────────────────────────────────────────────────────────────────────────────────────────────────────────
SETPOINT_ALERT_SECONDS = env.seconds("SETPOINT_ALERT_SECONDS", 30)
"""Between two looks at whether something of a cluster is wrong."""
SETPOINT_ALERT_DAYS = env.integer("SETPOINT_ALERT_DAYS", 90, least=1)
"""How long closed alerts are kept."""
SETPOINT_DELIVERY_DAYS = env.integer("SETPOINT_DELIVERY_DAYS", 14, least=1)
"""How long the log of what was sent is kept."""
EMAIL_HOST = env.text("SETPOINT_MAIL_HOST")
"""Empty: no mail is sent."""
EMAIL_PORT = env.integer("SETPOINT_MAIL_PORT", 587, least=1)
EMAIL_USE_TLS, EMAIL_USE_SSL = env.mail_security(env.text("SETPOINT_MAIL_SECURITY", "starttls"))
EMAIL_HOST_USER = env.text("SETPOINT_MAIL_USER")
EMAIL_HOST_PASSWORD = env.text("SETPOINT_MAIL_PASSWORD")
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = env.text("SETPOINT_MAIL_FROM", "setpoint@localhost")


def every(task: str, seconds: float) -> dict[str, Any]:
    """Return a beat entry whose message expires when the next one is due: a message not taken by then is worthless."""
    return {"task": task, "schedule": seconds, "options": {"expires": max(seconds, 1.0)}}


CELERY_BEAT_SCHEDULE = {
    "sweep": every("jobs.tasks.sweep", SETPOINT_SWEEP_SECONDS),
    "expire-plans": every("jobs.tasks.expire_plans", 60),
    "draft-joining": every("jobs.tasks.draft_joining", 20),
    "seal": every("audit.tasks.seal", 1),
    "soften": every("compliance.tasks.soften", 15),
    "release-held": every("compliance.tasks.release_held", 5),
    "check-components": every("compliance.tasks.check_components", 5),
    "outliers": every("compliance.tasks.look_for_outliers", 60),
    "standings": every("compliance.tasks.renew", 600),
    "forget-history": every("compliance.tasks.forget", 3600),
    "read-gpus": every("gpus.tasks.tick", 5),
    "forget-gpus": every("gpus.tasks.forget", 1800),
    "look-at-queues": every("gpus.tasks.look_at_queues", 10),
    "study-rollouts": every("gpus.tasks.study", 30),
    "check-gates": every("gpus.tasks.check_gates", 30),
    "look-at-paces": every("gpus.tasks.look_at_paces", 60),
    "look-at-hosts": every("gpus.tasks.look_at_hosts", 60),
    "look-at-checks": every("gpus.tasks.look_at_checks", 5),
    "look-at-check-schedules": every("gpus.tasks.look_at_check_schedules", 60),
    "evaluate-alerts": every("notices.tasks.tick", 5),
    "send-notices": every("notices.tasks.notice", 5),
    "digest": every("notices.tasks.digest", 300),
    "ship-audit-head": every("notices.tasks.ship_audit_head", 60),
    "forward-audit": every("notices.tasks.forward_audit", 5),
    "forget-notices": every("notices.tasks.forget", 600),
    "pending-changes": every("accounts.tasks.pending", 20),
    "forget": every("accounts.tasks.forget_old", 600),
    "count-day": every("clusters.tasks.count_day", 600),
    "renew-credentials": every("clusters.tasks.renew_credentials", 60),
}

# ── Secrets and egress ────────────────────────────────────────────────────────────────────────────────────────────────
SETPOINT_CREDENTIAL_KEYS = env.words("SETPOINT_CREDENTIAL_KEYS")
"""Fernet keys, newest first; made in var/ when empty and embedded."""
SETPOINT_HELM_CREDENTIAL_KEYS = env.words("SETPOINT_HELM_CREDENTIAL_KEYS")
"""Fernet keys, newest first, of the worker of helm alone; made in var/ when empty and embedded."""
SETPOINT_AUDIT_KEY = env.secret("SETPOINT_AUDIT_KEY", VAR / "audit.key")
SETPOINT_AUDIT_HEADS_FILE = env.text("SETPOINT_AUDIT_HEADS_FILE", str(VAR / "audit-heads.log") if EMBEDDED else "")
"""Where each head of the sealed record is appended, away from the database; empty: nowhere."""
SETPOINT_AUDIT_HEADS_SYSLOG = env.text("SETPOINT_AUDIT_HEADS_SYSLOG")
"""`/dev/log`, `host:514` over UDP or `tcp://host:601`; empty: nowhere."""
SETPOINT_AUDIT_HEADS_WEBHOOK = env.text("SETPOINT_AUDIT_HEADS_WEBHOOK")
"""An https:// address that is sent each head, at most once a minute; empty: none."""
SETPOINT_AUDIT_FORWARD = forwarding.destinations(env.text("SETPOINT_AUDIT_FORWARD"))
"""Receivers of each sealed audit record by syslog, OpenTelemetry logs or webhook; a list that may hold secrets."""
SETPOINT_ALLOW_NETWORKS = env.words("SETPOINT_ALLOW_NETWORKS")
"""Networks that outgoing connections may reach although they are loopback, such as 127.0.0.0/8."""

# ── Components ────────────────────────────────────────────────────────────────────────────────────────────────────────
SETPOINT_HELM = env.text("SETPOINT_HELM")
"""The helm program, v3.17 or newer, or v4; empty: `helm` on PATH, else the one that comes as a package."""

# ── REST ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "accounts.access.authentication.BearerToken",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["common.scopes.HasScope", "accounts.access.role_gate.HasRole"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["common.strict_json.StrictJsonParser"],
    "DEFAULT_FILTER_BACKENDS": ["common.filtering.StrictFilters", "common.paging.Ordering"],
    "DEFAULT_PAGINATION_CLASS": "common.paging.Paging",
    "DEFAULT_METADATA_CLASS": "common.metadata.Methods",
    "DEFAULT_SCHEMA_CLASS": "config.openapi.Schema",
    "EXCEPTION_HANDLER": "config.errors.api_exception_handler",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Setpoint",
    "DESCRIPTION": (
        "Tunes Kubernetes nodes for AI work by reviewed plans. Errors are RFC 9457 problem documents. Lists are paged "
        "with limit and offset, or with start by key. Creating requests accept Idempotency-Key; writes to versioned "
        "objects need If-Match."
    ),
    "VERSION": VERSION,
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "PendingStatus": "accounts.models.PendingChange.Status",
        "PlanStatus": "jobs.models.Plan.Status",
        "RolloutStatus": "jobs.models.Rollout.Status",
        "FleetRunStatus": "jobs.models.FleetRun.Status",
        "StepStatus": "jobs.models.Step.Status",
        "CalendarRuleKind": "jobs.models.CalendarRule.Kind",
        "NodeComplianceOutStateEnum": "compliance.models.NodeStanding.STATES",
        "TelemetryKind": "gpus.models.telemetry.TelemetrySource.Kind",
        "TelemetryAuth": "gpus.models.telemetry.TelemetrySource.Auth",
        "TelemetryState": "gpus.models.telemetry.TelemetrySource.State",
        "BreakGlassVerdict": "jobs.models.GlassReview.Verdict",
        "WaitSystem": "gpus.models.queues.WorkloadWait.System",
        "QueueSystem": [("volcano", "volcano"), ("kueue", "kueue")],
        "GpuJobState": "clusters.models.GpuJob.State",
        "GpuJobOutcome": "clusters.models.GpuJob.Outcome",
        "GpuPriceKind": "gpus.models.showback.GpuPrice.Kind",
        "AlertStatus": "notices.models.Alert.Status",
        "AlertSeverity": "notices.models.SEVERITIES",
        "NoticeKind": "notices.models.Channel.What",
        "ChannelKind": "notices.models.Channel.Kind",
        "DeliveryStatus": "notices.models.Delivery.Status",
        "Role": "accounts.models.RoleBinding.Role",
        "TokenScope": "accounts.models.ApiToken.Scope",
        "TokenKind": "accounts.models.ApiToken.Kind",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "config.openapi.add_problems",
    ],
}
