"""Steps unknown after a restore from backup: the cluster's objects name steps not in this database (law 12).

Such an object is held, not overwritten, by plans and by steps alike, and a retry holds it again: trying again is not a
decision about it. The decision is a takeover (jobs.rollouts.takeovers): two people see each difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.db.models import Case, Exists, F, OuterRef, QuerySet, UUIDField, Value, When
from django.db.models.functions import Cast, Lower, Replace, Right

from clusters.models import Node, NodeTuning
from contract.nodetuning import Mode
from jobs.models import Rollout, Step

CHUNK = 500
BEFORE_WRITE = (Step.Status.QUEUED, Step.Status.ADMITTED, Step.Status.CORDONING, Step.Status.DRAINING)
"""States of a step whose object is not written yet."""
SPELLED = r"^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"
_OF_OURS = Exists(Step.objects.filter(pk=OuterRef("named")).order_by())
LEFT_OUT = (
    "Their NodeTunings are newer than this database, as after a restore from backup or a move of the cluster: an admin "
    "takes them over on the cluster's page, and a second person approves."
)


def unknown_steps(named: Iterable[str]) -> frozenset[str]:
    """Return those of the step ids found in a cluster that are not in this database. Empty text names no step."""
    ids_by_text = {text: _uuid(text) for text in named if text}
    ids = [step_id for step_id in ids_by_text.values() if step_id]
    known: set[UUID] = set()
    for start in range(0, len(ids), CHUNK):
        known.update(Step.objects.filter(pk__in=ids[start : start + CHUNK]).values_list("pk", flat=True))
    return frozenset(text for text, step_id in ids_by_text.items() if step_id not in known)


def naming_unknown_steps(rows: QuerySet[NodeTuning]) -> QuerySet[NodeTuning]:
    """The same as a condition, for what is counted together with much else. Only the usual spelling is taken for an
    id, so that what is none can be compared with none."""
    return rows.exclude(spec_step="").alias(mark=F("spec_step")).alias(named=_id_in_mark()).filter(~_OF_OURS)


def cordoned_by_unknown_steps(nodes: QuerySet[Node]) -> QuerySet[Node]:
    """Nodes whose cordon names such a step: `<installation>/<step>`, written before the step's first NodeTuning."""
    marked = nodes.filter(is_cordoned=True).exclude(cordoned_by="")
    return marked.alias(mark=Right("cordoned_by", 36)).alias(named=_id_in_mark()).filter(~_OF_OURS)


def _id_in_mark() -> Case:
    plain = Cast(Lower(Replace("mark", Value("-"), Value(""))), UUIDField())
    return Case(When(mark__regex=SPELLED, then=plain), default=None, output_field=UUIDField())


def is_row_behind(step: Step, tuning: NodeTuning) -> bool:
    """Return whether the node's object has this attempt of the step written, which its row has not come to.

    What a step that gives its node back leaves in the object is in mode observe.
    """
    if tuning.spec_step != str(step.pk) or tuning.mode == Mode.OBSERVE or step.status not in BEFORE_WRITE:
        return False
    answers = (tuning.status.get("step"), tuning.status.get("attempt")) == (str(step.pk), step.attempt)
    return not step.generation and (step.attempt == 1 or answers)


def steps_behind(cluster_id: UUID) -> list[Step]:
    """Return the steps of live rollouts in a cluster whose nodes' objects are newer than their rows, by node."""
    rows = Step.objects.filter(rollout__cluster_id=cluster_id, rollout__in=Rollout.objects.live().order_by())
    rows = rows.filter(status__in=BEFORE_WRITE, node__tuning__spec_step__gt="").select_related(
        "node__tuning", "rollout"
    )
    return [step for step in rows.order_by("node__name", "pk") if step.node and is_row_behind(step, step.node.tuning)]


def behind_sentence(node_name: str) -> str:
    return (
        f"The NodeTuning of {node_name} carries this step already, so it is newer than the step's row, as after a "
        f"restore from backup. Nothing is written twice: skip the node, or abort the rollout, and plan again."
    )


def unknown_step_sentence(node_name: str, step: str) -> str:
    return (
        f"The NodeTuning of {node_name} names step {step[:8]}, which this database does not know: it is newer, as "
        f"after a restore from backup or a move of the cluster. An admin takes it over on the cluster's page."
    )


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
