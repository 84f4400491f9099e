from django.apps import AppConfig


class ComplianceConfig(AppConfig):
    name = "compliance"

    def ready(self) -> None:
        from common import hooks
        from compliance.checks import watch
        from compliance.hooks import alert_rules, node_list, panels, timeline, usage
        from compliance.reports import component_pages
        from compliance.services import expectations
        from profiles.catalog import known_settings

        hooks.nodes_changed.subscribe(expectations.observe)
        hooks.follow.subscribe(watch.follow)
        hooks.followed_changed.subscribe(watch.heard)
        hooks.followed_relisted.subscribe(watch.relisted)
        hooks.not_followed.subscribe(watch.unheard)
        hooks.observed_keys.subscribe(known_settings.observable_keys)
        hooks.node_panels.subscribe(panels.of_node)
        hooks.revision_uses.subscribe(usage.of_revisions)
        hooks.targets_of_pools.subscribe(usage.targets)
        hooks.cluster_panels.subscribe(panels.of_cluster)
        hooks.component_panels.subscribe(panels.of_component)
        hooks.component_uses.subscribe(usage.of_component)
        hooks.timeline.subscribe(component_pages.timeline)
        hooks.cluster_numbers.subscribe(panels.numbers_of_cluster)
        hooks.left_behind.subscribe(expectations.left_behind)
        hooks.node_marks.subscribe(node_list.marks)
        hooks.node_filters.subscribe(node_list.filters)
        hooks.cluster_counts.subscribe(node_list.by_cluster)
        hooks.timeline.subscribe(timeline.entries)
        hooks.alert_rules.subscribe(alert_rules.rules)
