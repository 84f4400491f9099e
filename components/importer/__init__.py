"""A profile's draft from what a cluster runs already."""
