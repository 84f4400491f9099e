from django.apps import AppConfig


class ComplianceConfig(AppConfig):
    name = "compliance"

    def ready(self) -> None:
        from common import hooks
        from compliance import (
            alert_rules,
            component_pages,
            component_watch,
            node_list,
            panels,
            services,
            timeline,
            usage,
        )
        from profiles.catalog import known_settings

        hooks.nodes_changed.subscribe(services.observe)
        hooks.follow.subscribe(component_watch.follow)
        hooks.followed_changed.subscribe(component_watch.heard)
        hooks.followed_anew.subscribe(component_watch.anew)
        hooks.not_followed.subscribe(component_watch.unheard)
        hooks.observed_keys.subscribe(known_settings.observable_keys)
        hooks.node_panels.subscribe(panels.of_node)
        hooks.revision_uses.subscribe(usage.of_revisions)
        hooks.targets_of_pools.subscribe(usage.targets)
        hooks.cluster_panels.subscribe(panels.of_cluster)
        hooks.component_panels.subscribe(panels.of_component)
        hooks.timeline.subscribe(component_pages.timeline)
        hooks.cluster_numbers.subscribe(panels.numbers_of_cluster)
        hooks.left_behind.subscribe(services.left_behind)
        hooks.node_marks.subscribe(node_list.marks)
        hooks.node_filters.subscribe(node_list.filters)
        hooks.cluster_counts.subscribe(node_list.by_cluster)
        hooks.timeline.subscribe(timeline.of)
        hooks.alert_rules.subscribe(alert_rules.rules)
