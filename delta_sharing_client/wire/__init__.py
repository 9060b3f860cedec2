"""The bodies of the sharing protocol: requests written, NDJSON answers decoded into typed actions. Pure."""
