from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "jobs"

    def ready(self) -> None:
        from common import hooks
        from jobs import tasks
        from jobs.approvals import reviews
        from jobs.approvals.tickets import connections
        from jobs.hooks import (
            alert_rules,
            blockers,
            component_uses,
            node_list,
            panels,
            references,
            revision_uses,
            search,
        )
        from jobs.models import Freeze
        from jobs.planning import component_owners
        from jobs.reports import timeline

        hooks.unconfirmed_restores.subscribe(Freeze.unconfirmed_restores)
        hooks.stored_secrets.subscribe(connections.stored_secrets)
        hooks.nodes_changed.subscribe(tasks.nodes_changed)
        hooks.nodes_gone.subscribe(tasks.nodes_changed)
        hooks.owners_changed.subscribe(reviews.owners_changed)
        hooks.disconnect_blockers.subscribe(blockers.of_cluster)
        hooks.pool_blockers.subscribe(blockers.of_pool)
        hooks.cluster_disconnecting.subscribe(blockers.forget)
        hooks.node_panels.subscribe(panels.of_node)
        hooks.revision_uses.subscribe(revision_uses.of_revisions)
        hooks.cluster_panels.subscribe(panels.of_cluster)
        hooks.cluster_numbers.subscribe(panels.numbers_of_cluster)
        hooks.node_marks.subscribe(node_list.marks)
        hooks.rollouts_named.subscribe(references.rollouts_named)
        hooks.rollouts_of_pools.subscribe(references.rollouts_of_pools)
        hooks.objects_to_come.subscribe(references.objects_to_come)
        hooks.work_of_pools.subscribe(references.work_of_pools)
        hooks.plans_of_nodes.subscribe(references.plans_of_nodes)
        hooks.component_owners.subscribe(component_owners.owners)
        hooks.plans_of_archives.subscribe(references.plans_of_archives)
        hooks.component_uses.subscribe(component_uses.uses)
        hooks.timeline.subscribe(timeline.timeline_entries)
        hooks.search.subscribe(search.find)
        hooks.alert_rules.subscribe(alert_rules.rules)
