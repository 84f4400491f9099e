"""The YAML language of profiles: parsed, judged key by key, layered over what it extends."""
