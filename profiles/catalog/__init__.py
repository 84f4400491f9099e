"""The settings catalog: what is known of each key, read from its YAML files, with labels that programs act upon."""
