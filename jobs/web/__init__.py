"""Views, forms, serializers and REST of plans and rollouts."""
