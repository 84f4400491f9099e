from __future__ import annotations

from django.urls import path

from accounts.web import (
    exchange_views,
    factor_views,
    filter_views,
    people_views,
    session_views,
    setup_views,
    sign_on_views,
    views,
    workload_views,
)

app_name = "accounts"
urlpatterns = [
    path("login/", views.login, name="login"),
    path("login/code/", factor_views.login_code, name="login_code"),
    path("login/with/<slug:key>/", sign_on_views.begin, name="sign_on"),
    path("login/with/<slug:key>/back/", sign_on_views.back, name="sign_on_back"),
    path("logout/", views.logout, name="logout"),
    path("setup/", setup_views.first_run, name="setup"),
    path("account/", views.account, name="account"),
    path("account/tokens/", views.token_create, name="token_create"),
    path("account/tokens/<slug:pk>/revoke/", views.token_revoke, name="token_revoke"),
    path("account/password/", views.password, name="password"),
    path("account/second-factor/", factor_views.second_factor, name="second_factor"),
    path("account/second-factor/begin/", factor_views.begin, name="second_factor_begin"),
    path("account/second-factor/confirm/", factor_views.confirm, name="second_factor_confirm"),
    path("account/second-factor/remove/", factor_views.remove, name="second_factor_remove"),
    path("account/second-factor/recovery-codes/", factor_views.renew, name="second_factor_renew"),
    path("account/theme/", views.theme, name="theme"),
    path("account/sessions/<int:pk>/end/", session_views.end, name="session_end"),
    path("account/sessions/end-others/", session_views.end_others, name="session_end_others"),
    path("filters/", filter_views.keep, name="filter_keep"),
    path("filters/<int:pk>/drop/", filter_views.drop, name="filter_drop"),
    path("people/", people_views.people, name="people"),
    path("people/<int:pk>/", people_views.person_change, name="person_change"),
    path("people/<int:pk>/reset-password/", people_views.person_reset, name="person_reset"),
    path("people/<int:pk>/reset-second-factor/", factor_views.person_reset, name="person_reset_factor"),
    path("people/changes/<uuid:pk>/consent/", people_views.change_decide, {"verb": "consent"}, name="change_consent"),
    path("people/changes/<uuid:pk>/refuse/", people_views.change_decide, {"verb": "refuse"}, name="change_refuse"),
    path("link/<str:secret>/", people_views.link, name="link"),
    path("people/<int:pk>/sessions/end/", session_views.end_of_person, name="person_sessions_end"),
    path("oauth/token", exchange_views.token, name="token_exchange"),
    path("workloads/", workload_views.workloads, name="workloads"),
    path("workloads/<uuid:pk>/enable/", workload_views.set_enabled, {"is_enabled": True}, name="workload_enable"),
    path("workloads/<uuid:pk>/disable/", workload_views.set_enabled, {"is_enabled": False}, name="workload_disable"),
    path("workloads/<uuid:pk>/delete/", workload_views.delete, name="workload_delete"),
    path("people/roles/", people_views.role_grant, name="role_grant"),
    path("people/roles/<int:pk>/revoke/", people_views.role_revoke, name="role_revoke"),
]
