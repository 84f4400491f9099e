from __future__ import annotations

from django.urls import path, re_path

from compliance.web import component_views, timeline_views, views

app_name = "compliance"
urlpatterns = [
    path("compliance/", views.fleet, name="fleet"),
    path("compliance/live/", views.fleet_live, name="fleet_live"),
    path("compliance/nodes/", views.node_list, name="nodes"),
    path("compliance/clusters/<uuid:pk>/weak/", views.cluster_weak, name="cluster_weak"),
    path("compliance/nodes/<int:pk>/live/", views.node_live, name="node_live"),
    path("compliance/settings/", views.setting_list, name="settings"),
    path("compliance/changes/", views.change_list, name="changes"),
    path("compliance/pools/<int:pk>/observe/", views.observe, name="observe"),
    path("clusters/<uuid:pk>/equipment/live/", component_views.of_cluster, name="components_live"),
    path("clusters/<uuid:pk>/components/<slug:name>/", component_views.component, name="component"),
    path("clusters/<uuid:pk>/components/<slug:name>/live/", component_views.component_live, name="component_live"),
    path("clusters/<uuid:pk>/timeline/", timeline_views.cluster, name="cluster_timeline"),
    path("clusters/<uuid:pk>/timeline/lately/", timeline_views.cluster_lately, name="cluster_lately"),
    path("nodes/<int:pk>/timeline/", timeline_views.node, name="node_timeline"),
    path("nodes/<int:pk>/timeline/lately/", timeline_views.node_lately, name="node_lately"),
    path("pools/<int:pk>/timeline/", timeline_views.pool, name="pool_timeline"),
    path("profiles/<slug:name>/timeline/", timeline_views.profile, name="profile_timeline"),
    re_path(r"^compliance/(?P<name>nodes|settings|changes|outliers)\.(?P<form>csv|json)$", views.export, name="export"),
]
