"""Pages, REST, forms and the panels that GPUs add to other rooms' pages."""
