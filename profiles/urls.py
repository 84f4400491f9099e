from __future__ import annotations

from django.urls import path

from profiles import views

app_name = "profiles"
urlpatterns = [
    path("profiles/", views.profiles, name="profiles"),
    path("profiles/new/", views.profile_new, name="profile_new"),
    path("profiles/<slug:name>/", views.profile, name="profile"),
    path("profiles/<slug:name>/edit/", views.profile_edit, name="profile_edit"),
    path("profiles/<slug:name>/publish/", views.profile_publish, name="profile_publish"),
    path("profiles/<slug:name>/discard/", views.profile_discard, name="profile_discard"),
    path("profiles/<slug:name>/r<int:number>/", views.revision, name="revision"),
]
