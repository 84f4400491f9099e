"""Pages that `make screenshots` takes, their viewers and contents; and addresses that are no page, with the reason.

A test compares both tables with the URL table: a page that is in neither fails it. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shot:
    view: str
    """The name of its address, as `reverse` takes it."""
    path: str
    """With {places} that `Found` fills from the demo."""
    title: str
    says: str
    by: str = "operator"
    """The viewer: a name of the demo's people; empty without log-in."""
    name: str = ""
    """Of its files, where one view is shown more than once."""
    large: bool = False
    """Also with 5,000 nodes."""

    @property
    def file(self) -> str:
        return self.name or self.view.replace(":", "-").replace("_", "-")


SHOTS: tuple[Shot, ...] = (
    Shot("jobs:overview", "/", "Overview", "Three axes, what needs attention, which way it goes.", large=True),
    Shot(
        "search",
        "/search/?q=train",
        "Search",
        "Clusters, profiles, plans, rollouts and settings in one answer.",
    ),
    Shot("clusters:clusters", "/clusters/", "Clusters", "Every cluster with its three axes and whether it answers."),
    Shot("clusters:cluster", "/clusters/{atlas}/", "A cluster", "Axes, trend, pools, what needs attention."),
    Shot(
        "clusters:cluster",
        "/clusters/{dune}/",
        "A cluster that does not answer",
        "Since when, why, and what is therefore unknown.",
        name="clusters-unreachable",
    ),
    Shot(
        "compliance:cluster_timeline",
        "/clusters/{atlas}/timeline/",
        "A cluster's timeline",
        "Edits, verdicts, rollouts and drift in one order.",
    ),
    Shot("clusters:connect", "/clusters/connect/", "Connect a cluster", "Tested before it is stored.", by="admin"),
    Shot(
        "clusters:rotate",
        "/clusters/{atlas}/credential/",
        "A new credential",
        "The old one stays until it works.",
        by="admin",
    ),
    Shot(
        "clusters:disconnect",
        "/clusters/{cirrus}/disconnect/",
        "Disconnect",
        "What stays behind is shown first.",
        by="admin",
    ),
    Shot("clusters:nodes", "/nodes/", "Nodes", "Filters in the URL, saved under a name; three axes.", large=True),
    Shot("clusters:node", "/nodes/{drifted}/", "A drifted node", "Each setting, what won, and its history."),
    Shot(
        "compliance:node_timeline",
        "/nodes/{drifted}/timeline/",
        "A node's timeline",
        "What happened to this one machine.",
    ),
    Shot(
        "jobs:nodes_bulk",
        "/nodes/all/?compliance=drifted&cluster=atlas-training",
        "All nodes of a filter",
        "Plans for a stored query, held to the confirmed number.",
    ),
    Shot(
        "clusters:pool_new",
        "/clusters/{atlas}/pools/new/",
        "A new pool",
        "Which nodes a selector picks, before it is kept.",
    ),
    Shot("clusters:pool", "/pools/{pool}/", "A pool", "Its selector, nodes and target."),
    Shot("compliance:pool_timeline", "/pools/{pool}/timeline/", "A pool's timeline", "How its target came to be."),
    Shot(
        "compliance:fleet", "/compliance/", "Compliance", "By fleet, pool and cluster; counts always sum.", large=True
    ),
    Shot("gpus:fleet", "/gpus/", "GPUs", "From total to effective, and who holds GPUs idle.", large=True),
    Shot(
        "gpus:cluster",
        "/gpus/clusters/{atlas}/",
        "GPUs of a cluster",
        "Each GPU in a heatmap, and whether the figures can be trusted.",
        large=True,
    ),
    Shot(
        "gpus:jobs", "/gpus/jobs/", "Jobs with GPUs", "What each job held, how active it was, and how long it waited."
    ),
    Shot(
        "gpus:job",
        "/gpus/jobs/{job}/",
        "A job with GPUs",
        "Its life, cost and goodput; the node that drifted, and the pod there that fell behind.",
    ),
    Shot(
        "gpus:slower",
        "/gpus/slower/",
        "Non-compliant and underperforming",
        "Both facts of each node, crossed; neither is called the other's cause.",
        large=True,
    ),
    Shot("gpus:cost", "/gpus/cost/", "Cost by team", "What each team's GPUs and their energy cost in a month."),
    Shot("gpus:prices", "/gpus/prices/", "Prices", "Prices of GPUs and of energy, with their history."),
    Shot("gpus:teams", "/gpus/teams/", "Teams", "Teams, their budgets, and the rules that say whose a workload is."),
    Shot("gpus:team_week", "/team/1/", "A team's week", "Its nodes, jobs and cost, and nothing of other teams."),
    Shot("gpus:fit", "/gpus/clusters/{atlas}/fit/", "What fits", "Free GPUs by node, the largest gang, and who waits."),
    Shot(
        "gpus:source",
        "/gpus/clusters/{atlas}/source/",
        "Where telemetry comes from",
        "Auto-detected, or set by hand and tried first.",
        by="admin",
    ),
    Shot("compliance:nodes", "/compliance/nodes/", "Compliance by node", "Worst first."),
    Shot("compliance:settings", "/compliance/settings/", "Settings × pools", "Where which value holds."),
    Shot(
        "compliance:changes", "/compliance/changes/", "Changes of settings", "What drifted when, and who or what won."
    ),
    Shot("profiles:profiles", "/profiles/", "Profiles", "The library and the team's own."),
    Shot("profiles:profile_new", "/profiles/new/", "A new profile", "A form or YAML: the same thing in two views."),
    Shot("profiles:profile_import", "/profiles/import/", "Import", "YAML from elsewhere, judged before it is kept."),
    Shot("profiles:profile", "/profiles/training-h100/", "A profile", "Revisions, and where each is used."),
    Shot(
        "profiles:profile_edit",
        "/profiles/training-h100/edit/",
        "Edit a profile",
        "Range, risk and source beside each value.",
    ),
    Shot("components:components", "/components/", "Components", "The catalog, and what waits for what."),
    Shot(
        "components:component",
        "/components/gpu-operator/",
        "A component",
        "Presets, decisions, readiness, hazards, with sources.",
    ),
    Shot(
        "components:archives",
        "/components/archives/",
        "Chart archives",
        "Kept by their SHA-256, judged first.",
        by="admin",
    ),
    Shot(
        "components:repositories",
        "/components/repositories/",
        "Chart repositories",
        "Where charts come from.",
        by="admin",
    ),
    Shot(
        "components:repository_new",
        "/components/repositories/new/",
        "A new repository",
        "Tested in plain words.",
        by="admin",
    ),
    Shot(
        "components:cluster_components",
        "/clusters/{fjord}/values/",
        "Components' values of a cluster",
        "What differs from cluster to cluster.",
    ),
    Shot(
        "components:cluster_component",
        "/clusters/{fjord}/values/cilium/",
        "A component's values",
        "The origin of each key, judged against the chart.",
    ),
    Shot("components:installed_choose", "/components/installed/", "A profile from a cluster", "Which cluster to read."),
    Shot(
        "components:installed",
        "/clusters/{fjord}/installed/",
        "What a cluster runs",
        "Its releases, as the draft of a profile.",
    ),
    Shot(
        "compliance:component",
        "/clusters/{fjord}/components/volcano/",
        "A component in a cluster",
        "Held to what was approved: which field drifted, and who changed it.",
    ),
    Shot(
        "clusters:cluster",
        "/clusters/{fjord}/",
        "A cluster with components",
        "Beside its nodes, and never merged with them.",
        name="clusters-components",
    ),
    Shot("profiles:revision", "/profiles/training-h100/r2/", "A revision", "Immutable, named by its digest."),
    Shot(
        "profiles:export",
        "/profiles/training-h100/r2/export/",
        "Export",
        "Seven formats; each says what it cannot express.",
    ),
    Shot(
        "profiles:compare",
        "/profiles/compare/?before=training-h100+r1&after=training-h100+r2",
        "Compare",
        "Any two revisions, value by value.",
    ),
    Shot(
        "compliance:profile_timeline",
        "/profiles/training-h100/timeline/",
        "A profile's timeline",
        "Drafts, revisions, use.",
    ),
    Shot("jobs:plans", "/plans/", "Plans", "What is proposed, what waits, what is over."),
    Shot("jobs:plan_new", "/plans/new/", "A new plan", "A revision for a pool."),
    Shot(
        "jobs:plan",
        "/plans/P-{reboots}/",
        "A plan in review",
        "Blast radius first, then grouped differences.",
        by="approver",
    ),
    Shot(
        "jobs:plan",
        "/plans/P-{large}/",
        "A plan of thousands",
        "Folded until asked.",
        by="approver",
        name="jobs-plan-thousands",
        large=True,
    ),
    Shot(
        "jobs:plan",
        "/plans/P-{upgrade}/",
        "A plan with components",
        "An upgrade in review: what restarts, whose jobs it interrupts, how many GPUs are out, what a revert does.",
        by="approver",
        name="jobs-plan-components",
    ),
    Shot("jobs:plan_timeline", "/plans/P-{reboots}/timeline/", "A plan's timeline", "Rounds, verdicts, reminders."),
    Shot("jobs:approvals", "/approvals/", "Approvals", "To review, and my own requests.", by="approver"),
    Shot(
        "jobs:rules", "/approvals/rules/", "Approval rules", "Data: all that fit apply, the strictest wins.", by="admin"
    ),
    Shot("jobs:rule", "/approvals/rules/{rule}/", "A rule", "Which plans it fits, and who must agree.", by="admin"),
    Shot("jobs:rollouts", "/rollouts/", "Rollouts", "Live and finished."),
    Shot("jobs:rollout", "/rollouts/R-{failed}/", "A rollout that failed", "The failing node's reason first."),
    Shot(
        "jobs:rollout",
        "/rollouts/R-{succeeded}/",
        "A rollout that succeeded",
        "Finished batches folded.",
        name="jobs-rollout-succeeded",
    ),
    Shot(
        "jobs:rollout",
        "/rollouts/R-{equipped}/",
        "A rollout with components",
        "Dependencies, green when it is ready.",
        name="jobs-rollout-components",
    ),
    Shot("jobs:rollout_nodes", "/rollouts/R-{succeeded}/nodes/", "A rollout's nodes", "Every step, paged."),
    Shot("jobs:rollout_timeline", "/rollouts/R-{failed}/timeline/", "A rollout's timeline", "Every act, by whom."),
    Shot("jobs:step", "/rollouts/R-{failed}/steps/{step}/", "A step", "One node's way, with its log."),
    Shot(
        "jobs:step",
        "/rollouts/R-{tried}/steps/{tried_step}/",
        "A component's step",
        "helm output, what failed on which node, and how it went back.",
        name="jobs-step-component",
    ),
    Shot(
        "jobs:takeover",
        "/clusters/{atlas}/takeover/",
        "Take over",
        "What is newer than the database, after a move or a restore.",
        by="admin",
    ),
    Shot(
        "jobs:windows", "/windows/", "Maintenance windows", "When steps may start, and how to add a rule.", by="admin"
    ),
    Shot("jobs:freezes", "/freezes/", "Freezes", "When nothing may start.", by="admin"),
    Shot("audit:records", "/audit/", "Audit", "Append-only and chained.", by="admin"),
    Shot("notices:alerts", "/alerts/", "Alerts", "Condition for long enough, the worst first."),
    Shot("notices:alert", "/alerts/{alert}/", "An alert", "Condition since when, and what to do."),
    Shot("notices:rules", "/alerts/rules/", "Alert rules", "When each fires, and the same for Prometheus.", by="admin"),
    Shot("notices:rule", "/alerts/rules/thermal/", "An alert rule", "Off, or with other limits.", by="admin"),
    Shot("notices:channels", "/alerts/channels/", "Channels", "Signed webhooks and mail.", by="admin"),
    Shot("notices:channel_new", "/alerts/channels/new/", "A new channel", "Tested before it is stored.", by="admin"),
    Shot(
        "notices:channel",
        "/alerts/channels/{channel}/",
        "A channel",
        "Subscriptions, and how sending goes.",
        by="admin",
    ),
    Shot("notices:deliveries", "/alerts/deliveries/", "Deliveries", "What was sent, and what waits.", by="admin"),
    Shot("accounts:account", "/account/", "One's account", "Tokens with last use and expiry, sessions, roles."),
    Shot("accounts:second_factor", "/account/second-factor/", "Second factor", "Begun with one's password."),
    Shot("accounts:confirm", "/account/confirm/", "Confirm that it is you", "For what takes a recent log-in."),
    Shot("accounts:people", "/people/", "People and roles", "Roles by environment or cluster.", by="admin"),
    Shot("accounts:scim_clients", "/provisioning/", "Provisioning", "Tokens of directories (SCIM).", by="admin"),
    Shot("accounts:workloads", "/workloads/", "Workload identity", "Rules for tokens of pipelines.", by="admin"),
    Shot("api-docs", "/api/v1/docs", "The API", "OpenAPI from the code."),
    Shot("accounts:login", "/login/", "Log in", "Throttled and recorded.", by=""),
    Shot("accounts:setup", "/setup/?token={token}", "First run", "Only the printed token opens it, once.", by=""),
)

_ACT = "an act: it answers a form and leads back"
_PART = "a part of a page that renews itself"
_PROGRAM = "for programs"
_SCIM = ("user", "users", "users_search", "group", "groups", "groups_search", "search", "config", "type", "types",
         "schema", "schemas")  # fmt: skip
NO_PAGE: dict[str, str] = {
    "accounts:link": "a link that works once opens it",
    "accounts:login_code": "a right password opens it",
    **dict.fromkeys(("accounts:sign_on", "accounts:saml"), "leads to a provider of single sign-on"),
    **dict.fromkeys(("accounts:sign_on_back", "accounts:saml_answer"), "leads back from it"),
    **dict.fromkeys(("accounts:token_exchange", "accounts:saml_metadata", "jobs:change_record_hook"), _PROGRAM),
    **{f"accounts:scim_{name}": _PROGRAM for name in _SCIM},
    **dict.fromkeys(
        (
            "accounts:passkey_log_in_options", "accounts:passkey_second_step_options",
            "accounts:passkey_confirm_options", "accounts:passkey_register_options",
        ),
        "what the page's script asks for",
    ),
    **dict.fromkeys(("healthz", "readyz", "metrics", "openapi", "clusters:manifest"), _PROGRAM),
    **dict.fromkeys(
        (
            "compliance:export", "profiles:export_file", "gpus:rule_file", "gpus:dashboard_file", "gpus:slower_csv",
            "gpus:waits_csv", "gpus:waits_json", "gpus:slower_json",
            "gpus:cost_csv", "gpus:cost_focus", "jobs:plan_role", "jobs:window_export", "components:site_entry_file",
        ),
        "a file to keep",
    ),
    **dict.fromkeys(("components:site_entry", "components:site_entries"), "the demo has no entry of its own"),
    "components:site_entry_new": "a form of one text",
    "gpus:team": "a form of two fields", "accounts:person_limit": "a form of one field",
    "gpus:job_of": "it leads to the job", "gpus:own_teams": "it leads to the team",
    **dict.fromkeys(
        (
            "gpus:checks", "gpus:check_schedule", "jobs:window", "jobs:policy", "jobs:change_records",
            "jobs:policy_version", "jobs:fleet_runs", "jobs:fleet_run_new", "jobs:fleet_run",
        ),
        "the demo has none",
    ),
    **dict.fromkeys(("gpus:queues", "gpus:starts"), "the pictures have their full size already"),
    "gpus:inference": "its parts are read when they are scrolled into view",
    "jobs:plan_request": "the demo's pools are small: their plans are made within the request",
    "components:repository": "the demo has none of its own: its charts were uploaded",
    **dict.fromkeys(
        (
            "compliance:fleet_live", "compliance:node_live", "compliance:cluster_lately", "compliance:node_lately",
            "compliance:components_live", "compliance:component_live", "compliance:cluster_weak",
            "clusters:worst", "gpus:slower_live", "gpus:forecast", "gpus:node_host", "gpus:job_hosts",
            "gpus:inference_live", "gpus:job_inference", "gpus:job_training", "gpus:reclaim", "gpus:rollout_starts",
            "jobs:plan_request_live", "jobs:rollout_live", "search_found", "profiles:verdict", "profiles:verdict_new",
            "profiles:setting_search",
        ),
        _PART,
    ),
    **dict.fromkeys(
        (
            "accounts:logout", "accounts:token_create", "accounts:token_revoke", "accounts:password", "accounts:theme",
            "accounts:session_end", "accounts:session_end_others", "accounts:filter_keep", "accounts:filter_drop",
            "accounts:person_change", "accounts:person_reset", "accounts:change_consent", "accounts:change_refuse",
            "accounts:second_factor_begin", "accounts:second_factor_confirm", "accounts:second_factor_remove",
            "accounts:second_factor_renew", "accounts:person_reset_factor",
            "accounts:passkey_log_in", "accounts:passkey_second_step", "accounts:passkey_confirm",
            "accounts:passkey_register", "accounts:passkey_remove",
            "accounts:person_sessions_end", "accounts:role_grant", "accounts:role_revoke",
            "accounts:scim_client_revoke", "accounts:workload_enable", "accounts:workload_disable",
            "accounts:workload_delete",
            "clusters:update", "clusters:test", "clusters:refresh", "clusters:pool_delete", "clusters:node_refresh",
            "profiles:profile_publish", "profiles:profile_discard", "profiles:profile_owner",
            "compliance:observe", "jobs:plan_act", "jobs:rule_delete", "jobs:rule_rest", "jobs:rollout_act",
            "jobs:freeze_lift", "jobs:fleet_run_act", "jobs:window_end", "jobs:window_import", "jobs:policy_act",
            "jobs:plan_break_glass", "jobs:plan_change_record", "jobs:change_record_rule_delete",
            "jobs:ticket_connection_new", "jobs:ticket_connection_delete",
            "jobs:rollout_review", "components:archive_delete", "components:repository_delete",
            "components:site_entry_draft", "components:site_entry_classify", "components:site_entry_delete",
            "notices:acknowledge", "notices:silence", "notices:unsilence",
            "gpus:price_withdraw", "gpus:check_image", "gpus:check_stop", "gpus:check_schedules",
            "gpus:check_schedule_remove", "gpus:team_remove", "gpus:team_rules",
            "notices:rule_reset", "notices:channel_delete", "notices:delivery_retry",
        ),
        _ACT,
    ),
}  # fmt: skip
