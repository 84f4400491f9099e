"""Access reviews: the API server answers which rights an account has, one review for each verb on each resource.

Kubernetes judges what may be granted rule by rule as it judges a request, so the same question answers both. As helm's
own identity the question is about oneself; the identity that plans asks about helm's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

from clusters.kube.apiserver import ApiServer, Call
from components.plans.authority import Right
from contract import names

PARALLEL = 8
SHOWN = 4
"""Of what is missing, in a sentence."""
_API = "authorization.k8s.io/v1"


class AccessQuestion(NamedTuple):
    verb: str
    group: str = ""
    resource: str = ""
    """With its subresource: `pods/log`."""
    name: str = ""
    namespace: str = ""
    url: str = ""

    @property
    def text(self) -> str:
        if self.url:
            return f"{self.verb} {self.url}"
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        return " ".join(part for part in (self.verb, kind, self.name) if part)

    @property
    def spec(self) -> Mapping[str, Any]:
        if self.url:
            return {"nonResourceAttributes": {"verb": self.verb, "path": self.url}}
        resource, _, subresource = self.resource.partition("/")
        attributes = {
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "name": self.name,
            "namespace": self.namespace,
        }
        return {"resourceAttributes": {key: value for key, value in attributes.items() if value}}


EVERYTHING = AccessQuestion("*", "*", "*")


def check_rights(server: ApiServer, rights: Sequence[Right], *, account: str = "") -> tuple[Right, ...]:
    """The same, each with what of it the account lacks; empty: the caller. Raises FleetError."""
    has_all = may(server, EVERYTHING, account)
    questions = [list(_questions(right)) for right in rights]
    every = list({question for of_right in questions for question in of_right if question.url or not has_all})
    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="rights") as pool:
        answers = pool.map(lambda question: may(server, question, account), every)
        refused = {question for question, is_so in zip(every, answers, strict=True) if not is_so}
    return tuple(
        replace(right, lacks=tuple(question.text for question in of_right if question in refused))
        for right, of_right in zip(rights, questions, strict=True)
    )


def may(server: ApiServer, question: AccessQuestion, account: str = "") -> bool:
    """Raises FleetError."""
    kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
    spec = {**question.spec, **(_subject(account) if account else {})}
    plural = f"{kind.lower()}s"
    call, path = Call("create", plural), f"/apis/{_API}/{plural}"
    answer = server.ask(call, "POST", path, body={"apiVersion": _API, "kind": kind, "spec": spec})
    return (answer.object(kind).get("status") or {}).get("allowed") is True


def lacking_in_words(lacking: Iterable[Right]) -> str:
    """`create configmaps; list secrets in space; and 3 more`"""
    texts = [
        f"{what}{f' in {right.namespace}' if right.namespace else ''}" for right in lacking for what in right.lacks
    ]
    texts = list(dict.fromkeys(texts))
    more = [f"and {len(texts) - SHOWN} more"] if len(texts) > SHOWN else []
    return "; ".join([*texts[:SHOWN], *more])


def _questions(right: Right) -> Iterator[AccessQuestion]:
    for verb in right.verbs:
        for url in right.urls:
            yield AccessQuestion(verb, url=url)
        for group in right.groups:
            for resource in right.resources:
                for name in right.names or ("",):
                    yield AccessQuestion(verb, group, resource, name, right.namespace)


def _subject(account: str) -> Mapping[str, Any]:
    space = f"system:serviceaccounts:{names.NAMESPACE}"
    return {
        "user": f"system:serviceaccount:{names.NAMESPACE}:{account}",
        "groups": ["system:serviceaccounts", space, "system:authenticated"],
    }
