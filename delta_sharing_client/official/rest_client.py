"""`delta_sharing.rest_client`, of which nothing has a counterpart here."""

from delta_sharing_client.official.missing import missing

__getattr__ = missing("rest_client")
