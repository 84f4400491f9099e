"""Values as data: paths, secrets' references, schemas, YAML texts. Knows no component."""
