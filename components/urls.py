from __future__ import annotations

from django.urls import path

from components import views

app_name = "components"
urlpatterns = [
    path("components/", views.components, name="components"),
    path("components/<slug:name>/", views.component, name="component"),
]
