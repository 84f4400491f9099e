from __future__ import annotations

from django.urls import path

from profiles.web import editor_views, sharing_views, views

app_name = "profiles"
urlpatterns = [
    path("profiles/", views.profiles, name="profiles"),
    path("profiles/new/", editor_views.profile_new, name="profile_new"),
    path("profiles/new/verdict/", editor_views.verdict, name="verdict_new"),
    path("profiles/settings/found/", editor_views.setting_search, name="setting_search"),
    path("profiles/import/", sharing_views.profile_import, name="profile_import"),
    path("profiles/compare/", sharing_views.compare, name="compare"),
    path("profiles/<slug:name>/", views.profile, name="profile"),
    path("profiles/<slug:name>/edit/", editor_views.profile_edit, name="profile_edit"),
    path("profiles/<slug:name>/edit/verdict/", editor_views.verdict, name="verdict"),
    path("profiles/<slug:name>/publish/", views.profile_publish, name="profile_publish"),
    path("profiles/<slug:name>/discard/", views.profile_discard, name="profile_discard"),
    path("profiles/<slug:name>/owner/", views.profile_owner, name="profile_owner"),
    path("profiles/<slug:name>/r<int:number>/", views.revision, name="revision"),
    path("profiles/<slug:name>/r<int:number>/export/", sharing_views.export, name="export"),
    path("profiles/<slug:name>/r<int:number>/export/<str:to>/", sharing_views.export_file, name="export_file"),
]
