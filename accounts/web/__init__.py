"""Pages and REST of people, roles, sessions, tokens and saved filters: views, forms and serializers."""
