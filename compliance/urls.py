from __future__ import annotations

from django.urls import path, re_path

from compliance import views

app_name = "compliance"
urlpatterns = [
    path("compliance/", views.fleet, name="fleet"),
    path("compliance/live/", views.fleet_live, name="fleet_live"),
    path("compliance/nodes/", views.node_list, name="nodes"),
    path("compliance/nodes/<int:pk>/live/", views.node_live, name="node_live"),
    path("compliance/settings/", views.setting_list, name="settings"),
    path("compliance/changes/", views.change_list, name="changes"),
    path("compliance/pools/<int:pk>/observe/", views.observe, name="observe"),
    re_path(r"^compliance/(?P<name>nodes|settings|changes|outliers)\.(?P<form>csv|json)$", views.export, name="export"),
]
