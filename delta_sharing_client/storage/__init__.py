"""Byte sources: pre-signed URLs, local files, directories of an object store."""
