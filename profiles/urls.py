from __future__ import annotations

from django.urls import path

from profiles import editor, sharing, views

app_name = "profiles"
urlpatterns = [
    path("profiles/", views.profiles, name="profiles"),
    path("profiles/new/", editor.profile_new, name="profile_new"),
    path("profiles/new/verdict/", editor.verdict, name="verdict_new"),
    path("profiles/settings/found/", editor.setting_search, name="setting_search"),
    path("profiles/import/", sharing.profile_import, name="profile_import"),
    path("profiles/compare/", sharing.compare, name="compare"),
    path("profiles/<slug:name>/", views.profile, name="profile"),
    path("profiles/<slug:name>/edit/", editor.profile_edit, name="profile_edit"),
    path("profiles/<slug:name>/edit/verdict/", editor.verdict, name="verdict"),
    path("profiles/<slug:name>/publish/", views.profile_publish, name="profile_publish"),
    path("profiles/<slug:name>/discard/", views.profile_discard, name="profile_discard"),
    path("profiles/<slug:name>/r<int:number>/", views.revision, name="revision"),
    path("profiles/<slug:name>/r<int:number>/export/", sharing.export, name="export"),
    path("profiles/<slug:name>/r<int:number>/export/<str:to>/", sharing.export_file, name="export_file"),
]
