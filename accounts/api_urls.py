from __future__ import annotations

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from accounts.web import api, filter_api, pending_api, session_api, workload_api

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("users", api.Users, basename="api-user")
router.register("role-bindings", api.RoleBindings, basename="api-role-binding")
router.register("tokens", api.Tokens, basename="api-token")
router.register("saved-filters", filter_api.SavedFilters, basename="api-saved-filter")
router.register("pending-changes", pending_api.PendingChanges, basename="api-pending-change")
router.register("sessions", session_api.Sessions, basename="api-session")
router.register("workload-rules", workload_api.WorkloadRules, basename="api-workload-rule")

urlpatterns = [path("me", api.Me.as_view(), name="api-me"), path("", include(router.urls))]
