"""Values of a component that hold for one cluster, and the form that edits them."""
