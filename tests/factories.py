"""People for tests. `UserFactory(roles=["operator", "approver@env:staging"])` holds those roles; bare ones mean `*`."""

from __future__ import annotations

from typing import Any

import factory
from django.test import Client

from accounts.access import tokens
from accounts.models import ApiToken, RoleBinding, User

JSON = "application/json"
PASSWORD = "correct horse battery staple"


class UserFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = User
        skip_postgeneration_save = True

    email = factory.Sequence("person{}@example.com".format)
    username = factory.SelfAttribute("email")
    password = factory.django.Password(PASSWORD)

    @factory.post_generation
    def roles(self: User, create: bool, extracted: list[str] | None, **_: Any) -> None:
        for wish in extracted or []:
            role, _at, scope = wish.partition("@")
            RoleBinding.objects.create(user=self, role=role, scope=scope or "*")


class TokenClient(Client):
    """Calls the API with JSON as `user`, through a token with `scopes`; every answer's JSON is in `.json()`."""

    def __init__(self, user: User, scopes: list[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        wanted = scopes or [scope for scope in ApiToken.Scope.values if scope != "approve" or not user.is_service]
        by = user if not user.is_service else UserFactory(roles=["admin"])
        self.token, self.text = tokens.issue(user=user, name="test", scopes=wanted, days=1, by=by)
        self.defaults["HTTP_AUTHORIZATION"] = f"Bearer {self.text}"

    def post(self, path: str, data: Any = None, content_type: str = JSON, **kw: Any) -> Any:  # type: ignore[override]
        return super().post(path, {} if data is None else data, content_type, **kw)

    def put(self, path: str, data: Any = None, content_type: str = JSON, **kw: Any) -> Any:  # type: ignore[override]
        return super().put(path, {} if data is None else data, content_type, **kw)

    def patch(self, path: str, data: Any = None, content_type: str = JSON, **kw: Any) -> Any:  # type: ignore[override]
        return super().patch(path, {} if data is None else data, content_type, **kw)
