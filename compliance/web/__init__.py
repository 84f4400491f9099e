"""Pages and REST of compliance: views, serializers and timelines."""
