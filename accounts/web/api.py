"""REST: oneself, people, roles, tokens. Roles are checked by the services; these classes only translate."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.response import Response

from accounts.access import tokens
from accounts.access.addresses import client_address
from accounts.models import ApiToken, RoleBinding, User
from accounts.people import factor_resets, limits, services
from accounts.people.pending import Proposed
from accounts.permissions import GLOBAL, Role, may, may_audit, require, require_audit
from accounts.web.pending_api import LinkOut, PendingChangeOut, ProposedOut, link_out, proposed
from accounts.web.workload_api import NETWORKS
from common.api import ApiView, ApiViewSet, created
from common.bodies import Body, without_body
from common.errors import Invalid, NotAllowed
from common.requests import UserApiRequest


# ── Oneself ───────────────────────────────────────────────────────────────────────────────────────────────────────────
class BindingOut(serializers.ModelSerializer[RoleBinding]):
    email = serializers.EmailField(source="user.email", read_only=True)

    class Meta:
        model = RoleBinding
        fields = ["id", "user", "email", "role", "scope", "created_at"]


class TokenOut(serializers.ModelSerializer[ApiToken]):
    user = serializers.EmailField(source="user.email", read_only=True)
    scopes = serializers.ListField(child=serializers.ChoiceField(ApiToken.Scope.choices))
    is_live = serializers.BooleanField(read_only=True)
    rule = serializers.CharField(
        source="rule.name", default=None, allow_null=True, read_only=True, help_text="Of a workload's; null: of none."
    )
    networks = serializers.SerializerMethodField(help_text=NETWORKS)

    class Meta:
        model = ApiToken
        fields = [
            "id", "kind", "name", "user", "scopes", "created_at", "expires_at", "last_used_at", "revoked_at", "is_live",
            "rule", "subject", "networks",
        ]  # fmt: skip

    def get_networks(self, token: ApiToken) -> list[str]:
        return token.networks.split()


class MeOut(serializers.ModelSerializer[User]):
    bindings = BindingOut(many=True, read_only=True)
    token = TokenOut(source="acting_token", read_only=True, allow_null=True, help_text="The token of this request.")

    class Meta:
        model = User
        fields = ["id", "email", "first_name", "last_name", "is_superuser", "is_service", "bindings", "token"]


class Me(ApiView):
    """The account that this request acts as, with its roles and the token used."""

    request: UserApiRequest
    needs_role = False
    scope_for = {"GET": "read"}

    @extend_schema(responses=MeOut, operation_id="me")
    def get(self, request: UserApiRequest) -> Response:
        return Response(MeOut(request.user).data)


PLACES = "Address ranges that log-ins, sessions and tokens of the account are accepted from; empty: any."


# ── People ────────────────────────────────────────────────────────────────────────────────────────────────────────────
class UserOut(serializers.ModelSerializer[User]):
    has_second_factor = serializers.SerializerMethodField(
        help_text="Its log-in asks for a code or a passkey after the password."
    )
    networks = serializers.SerializerMethodField(help_text=PLACES)

    class Meta:
        model = User
        fields = [
            "id", "email", "first_name", "last_name", "is_active", "is_service", "is_superuser", "has_second_factor",
            "networks", "date_joined", "last_login",
        ]  # fmt: skip

    def get_networks(self, user: User) -> list[str]:
        return user.networks.split()

    def get_has_second_factor(self, user: User) -> bool:
        factor = getattr(user, "second_factor", None)
        return (factor is not None and factor.is_in_effect) or bool(user.passkeys.all())


class UserIn(Body[User]):
    email = serializers.EmailField(max_length=150)
    first_name = serializers.CharField(required=False, allow_blank=True, max_length=150)
    last_name = serializers.CharField(required=False, allow_blank=True, max_length=150)
    is_service = serializers.BooleanField(required=False, default=False)


class UserChange(Body[User]):
    first_name = serializers.CharField(required=False, allow_blank=True, max_length=150)
    last_name = serializers.CharField(required=False, allow_blank=True, max_length=150)
    is_active = serializers.BooleanField(required=False)
    networks = serializers.ListField(
        child=serializers.CharField(max_length=60),
        required=False,
        help_text=f"{PLACES} Changed in a request of its own.",
    )


class UserMade(UserOut):
    link = LinkOut(allow_null=True, help_text="Null for a service account.")

    class Meta(UserOut.Meta):
        fields = [*UserOut.Meta.fields, "link"]


def _without_password(request: UserApiRequest) -> Any:
    """The body. Raises Invalid where it holds a password."""
    if isinstance(request.data, dict) and "password" in request.data:
        wrong = "A password is set by its owner only, with the link of a new or reset account. Leave it out."
        raise Invalid("The account was not changed.", fields={"password": [wrong]})
    return request.data


class Users(mixins.ListModelMixin, ApiViewSet):
    """People and service accounts. For administrators of everything; auditors read them."""

    request: UserApiRequest
    scope_for = {"GET": "read", "POST": "admin", "PATCH": "admin", "reset_password": "admin",
                 "reset_second_factor": "admin"}  # fmt: skip
    shown_once = ("link", "code")
    serializer_class = UserOut
    ordering_fields = ("email", "date_joined", "last_login")
    filterset_fields = ["email", "is_active", "is_service"]
    lookup_value_converter = "int"

    def get_queryset(self) -> QuerySet[User]:
        if getattr(self, "swagger_fake_view", False):
            return User.objects.none()
        require_audit(self.request.user, "see people")
        return User.objects.select_related("second_factor").prefetch_related("passkeys").order_by("email")

    @extend_schema(request=UserIn, responses={201: UserMade})
    def create(self, request: UserApiRequest) -> Response:
        """Add an account. A person gets a link to set their password with: mailed to them, or shown here once."""
        body = UserIn(data=_without_password(request))
        body.is_valid(raise_exception=True)
        user, link = services.add_user(**body.validated_data, by=request.user)
        return created(UserOut(user).data | {"link": link_out(link)}, f"/api/v1/users/{user.pk}")

    @extend_schema(request=UserChange, responses={200: UserOut, 202: PendingChangeOut})
    def partial_update(self, request: UserApiRequest, pk: int) -> Response:
        """Change an account. 202: activating an approver or administrator, or accepting one from more addresses, takes
        a second administrator's consent."""
        user = self.get_object()
        body = UserChange(data=_without_password(request))
        body.is_valid(raise_exception=True)
        changes = dict(body.validated_data)
        done: User | Proposed
        if (networks := changes.pop("networks", None)) is None:
            done = services.change_user(user=user, by=request.user, **changes)
        elif changes:
            raise Invalid("The account was not changed.", fields={"networks": ["Change it in a request of its own."]})
        else:
            address = client_address(request._request)
            done = limits.limit(user=user, networks=networks, by=request.user, address=address)
        return proposed(done) if isinstance(done, Proposed) else Response(UserOut(done).data)

    @extend_schema(request=None, responses={200: LinkOut, 202: ProposedOut})
    @action(detail=True, methods=["post"], url_path="actions/reset-password", url_name="reset-password")
    @without_body
    def reset_password(self, request: UserApiRequest, pk: int) -> Response:
        """End password, sessions and tokens; the owner gets a link. 202: an approver's or administrator's reset waits
        for a second administrator's consent."""
        done = services.reset_password(user=self.get_object(), by=request.user)
        return proposed(done) if isinstance(done, Proposed) else Response(link_out(done))

    @extend_schema(request=None, responses={200: UserOut, 202: PendingChangeOut})
    @action(detail=True, methods=["post"], url_path="actions/reset-second-factor", url_name="reset-second-factor")
    @without_body
    def reset_second_factor(self, request: UserApiRequest, pk: int) -> Response:
        """Take the second factor of another person away and end their sessions; the password stays. 202: an approver's
        or administrator's reset waits for a second administrator's consent."""
        done = factor_resets.reset(user=self.get_object(), by=request.user)
        return proposed(done) if done else Response(UserOut(self.get_object()).data)


# ── Roles ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
class BindingIn(Body[RoleBinding]):
    user = serializers.EmailField(help_text="Whose; by email.")
    role = serializers.ChoiceField(Role.choices)
    scope = serializers.CharField(
        max_length=60, help_text="* | env:<environment> | cluster:<uuid>; of a viewer also team:<id>"
    )


class RoleBindings(mixins.ListModelMixin, mixins.DestroyModelMixin, ApiViewSet):
    """Roles by account and scope. Everyone sees their own; an administrator of a scope sees and changes that scope; an
    auditor sees all."""

    request: UserApiRequest
    needs_role = False
    scope_for = {"GET": "read", "POST": "admin", "DELETE": "admin"}
    serializer_class = BindingOut
    ordering_fields = ("created_at", "role", "scope")
    filterset_fields = ["role", "scope", "user"]
    lookup_value_converter = "int"

    def get_queryset(self) -> QuerySet[RoleBinding]:
        if getattr(self, "swagger_fake_view", False):
            return RoleBinding.objects.none()
        user, everything = self.request.user, RoleBinding.objects.select_related("user")
        if may_audit(user):
            return everything
        administered = [scope for role, scope in user.grants if role == Role.ADMIN]
        return everything.filter(user=user) | everything.filter(scope__in=administered)

    shown_once = ("code",)

    @extend_schema(request=BindingIn, responses={201: BindingOut, 202: ProposedOut})
    def create(self, request: UserApiRequest) -> Response:
        """Assign a role. 202: approver and admin wait for a second administrator's consent."""
        body = BindingIn(data=request.data)
        body.is_valid(raise_exception=True)
        require(request.user, Role.ADMIN, (*GLOBAL, body.validated_data["scope"]), "give roles")
        user = User.objects.filter(email=body.validated_data["user"].lower()).first()
        if user is None:
            raise serializers.ValidationError({"user": ["No account has this address."]})
        binding = services.bind(
            user=user, role=body.validated_data["role"], scope=body.validated_data["scope"], by=request.user
        )
        if isinstance(binding, Proposed):
            return proposed(binding)
        return created(BindingOut(binding).data, f"/api/v1/role-bindings/{binding.pk}")

    def perform_destroy(self, instance: RoleBinding) -> None:
        services.unbind(binding=instance, by=self.request.user)


# ── Tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────────
class TokenIn(Body[ApiToken]):
    name = serializers.CharField(max_length=80)
    scopes = serializers.ListField(child=serializers.ChoiceField(ApiToken.Scope.choices), min_length=1, max_length=5)
    days = serializers.IntegerField(
        min_value=1,
        max_value=tokens.MOST_DAYS,
        help_text=f"How long it lives; at most {tokens.APPROVE_DAYS} with the scope approve.",
    )
    user = serializers.EmailField(required=False, help_text="A service account; left out: yourself.")
    networks = serializers.ListField(
        child=serializers.CharField(max_length=60), required=False, default=list, help_text=NETWORKS
    )


class TokenMade(TokenOut):
    token = serializers.CharField(read_only=True, help_text="The token itself, in this answer only.")

    class Meta(TokenOut.Meta):
        fields = [*TokenOut.Meta.fields, "token"]


class Tokens(mixins.ListModelMixin, ApiViewSet):
    """One's own tokens; administrators and auditors see all. DELETE revokes: the row stays, for the record."""

    request: UserApiRequest
    needs_role = False
    scope_for = {"GET": "read", "POST": "admin", "DELETE": "admin"}
    serializer_class = TokenOut
    ordering_fields = ("created_at", "expires_at", "last_used_at", "name")
    filterset_fields = ["kind"]
    lookup_value_converter = "slug"
    shown_once = ("token",)

    def get_queryset(self) -> QuerySet[ApiToken]:
        if getattr(self, "swagger_fake_view", False):
            return ApiToken.objects.none()
        return tokens.visible_to(self.request.user)

    @extend_schema(request=TokenIn, responses={201: TokenMade})
    def create(self, request: UserApiRequest) -> Response:
        body = TokenIn(data=request.data)
        body.is_valid(raise_exception=True)
        wishes = dict(body.validated_data)
        user = _owner(request.user, wishes.pop("user", ""))
        token, text = tokens.issue(user=user, by=request.user, **wishes)
        return created(TokenOut(token).data | {"token": text}, f"/api/v1/tokens/{token.pk}")

    @extend_schema(responses={204: None})
    def destroy(self, request: UserApiRequest, pk: str) -> Response:
        tokens.revoke(token=tokens.get(request.user, pk), by=request.user)
        return Response(status=status.HTTP_204_NO_CONTENT)


def _owner(by: User, email: str) -> User:
    """Raises Invalid, NotAllowed. Only administrators learn whether an address exists."""
    if not email or email.lower() == by.email:
        return by
    if not may(by, Role.ADMIN, GLOBAL):
        raise NotAllowed("Only administrators make tokens for others, and only for service accounts.")
    user = User.objects.filter(email=email.lower()).first()
    if user is None:
        raise Invalid("Whose token?", fields={"user": ["No account has this address."]})
    return user
