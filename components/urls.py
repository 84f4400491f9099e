from __future__ import annotations

from django.urls import path

from components.web import archive_views, import_views, repository_views, site_views, values_views, views

app_name = "components"
urlpatterns = [
    path("components/", views.components, name="components"),
    path("components/archives/", archive_views.archives, name="archives"),
    path("components/archives/<slug:sha256>/delete/", archive_views.archive_delete, name="archive_delete"),
    path("components/installed/", import_views.choose, name="installed_choose"),
    path("clusters/<uuid:pk>/installed/", import_views.installed, name="installed"),
    path("components/repositories/", repository_views.repositories, name="repositories"),
    path("components/repositories/new/", repository_views.repository_new, name="repository_new"),
    path("components/repositories/<uuid:pk>/", repository_views.repository, name="repository"),
    path("components/repositories/<uuid:pk>/delete/", repository_views.repository_delete, name="repository_delete"),
    path("components/site/", site_views.entries, name="site_entries"),
    path("components/site/new/", site_views.entry_new, name="site_entry_new"),
    path("components/site/draft/", site_views.entry_draft, name="site_entry_draft"),
    path("components/site/entries/<slug:name>/", site_views.entry, name="site_entry"),
    path("components/site/entries/<slug:name>/classify/", site_views.entry_classify, name="site_entry_classify"),
    path("components/site/entries/<slug:name>/delete/", site_views.entry_delete, name="site_entry_delete"),
    path("components/site/entries/<slug:name>/file/", site_views.entry_file, name="site_entry_file"),
    path("components/<slug:name>/", views.component, name="component"),
    path("clusters/<uuid:pk>/values/", values_views.cluster_components, name="cluster_components"),
    path("clusters/<uuid:pk>/values/<slug:name>/", values_views.cluster_component, name="cluster_component"),
]
