"""Row filters: parsed, bound to a schema, evaluated over column bounds, written as hints. Pure."""
