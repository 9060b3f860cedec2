"""`delta_sharing.converter`, of which nothing has a counterpart here."""

from delta_sharing_client.official.missing import missing

__getattr__ = missing("converter")
