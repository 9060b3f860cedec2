"""Tables of a provider's Iceberg REST catalog, read by pyiceberg."""
