"""Pages, REST, forms and serializers."""
