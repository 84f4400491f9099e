"""Pages, REST, forms, filters and serializers."""
