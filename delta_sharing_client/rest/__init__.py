"""The REST client of the sharing protocol: one method per endpoint, one page iterator."""
