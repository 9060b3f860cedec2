from materialize_fixtures import connect, faults, no_kept_logs, serve

__all__ = ["connect", "faults", "no_kept_logs", "serve"]
