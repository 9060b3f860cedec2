"""`delta_sharing.version`."""

#: The release of the official client whose names these modules have.
__version__ = "1.4.2"
