"""REST: browsers that are logged in. The service checks permissions; these classes only translate."""

from __future__ import annotations

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.access import sessions
from accounts.models import LiveSession, User
from common.api import ApiViewSet
from common.bodies import Body
from common.errors import Invalid
from common.requests import UserApiRequest


class SessionOut(serializers.ModelSerializer[LiveSession]):
    user = serializers.EmailField(source="user.email", read_only=True)
    device = serializers.CharField(read_only=True, help_text="Such as: Firefox on Linux.")
    is_this = serializers.SerializerMethodField(help_text="Whether this very request comes with it.")

    class Meta:
        model = LiveSession
        fields = ["id", "user", "device", "browser", "address", "started_at", "seen_at", "is_this"]

    def get_is_this(self, row: LiveSession) -> bool:
        request: Request = self.context["request"]
        return request.auth is None and row.key == sessions.key_of(request._request)


class EndSessionsIn(Body[LiveSession]):
    user = serializers.EmailField(required=False, help_text="Whose, for administrators of everything; yours if absent.")


class SessionsEnded(serializers.Serializer[LiveSession]):
    ended = serializers.IntegerField()


class Sessions(mixins.ListModelMixin, ApiViewSet):
    """Browsers logged in as oneself; administrators of everything see all. DELETE logs that browser out."""

    request: UserApiRequest
    needs_role = False
    scope_for = {"GET": "read", "DELETE": "admin", "end_others": "admin"}
    serializer_class = SessionOut
    ordering_fields = ("seen_at", "started_at")
    filterset_fields = ["user__email"]
    lookup_value_converter = "int"

    def get_queryset(self) -> QuerySet[LiveSession]:
        if getattr(self, "swagger_fake_view", False):
            return LiveSession.objects.none()
        return sessions.visible_to(self.request.user)

    @extend_schema(responses={204: None})
    def destroy(self, request: UserApiRequest, pk: int) -> Response:
        sessions.end(pk=int(pk), by=request.user)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=EndSessionsIn, responses=SessionsEnded)
    @action(detail=False, methods=["post"], url_path="actions/end-others", url_name="end-others")
    def end_others(self, request: UserApiRequest) -> Response:
        """All but the session that this request comes with; through a token, all of them."""
        body = EndSessionsIn(data=request.data)
        body.is_valid(raise_exception=True)
        email = str(body.validated_data.get("user", request.user.email)).lower()
        user = request.user if email == request.user.email else User.objects.filter(email=email).first()
        if user is None:
            user = _nobody(request.user)
        keep = sessions.key_of(request._request) if request.auth is None and user.pk == request.user.pk else None
        ended = sessions.end_others(user=user, keep=keep, by=request.user)
        return Response({"ended": ended})


def _nobody(by: User) -> User:
    """Refuse an unknown address. Only administrators learn whether it exists. Raises NotAllowed, Invalid."""
    sessions.require_over_others(by)
    raise Invalid("Whose sessions?", fields={"user": ["No account has this address."]})
