"""Change data feed: planning of change scans, the poller, its checkpoint."""
