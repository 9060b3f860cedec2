"""Profiles and the credentials in them: how they are read, and how requests are authorized."""
