"""Modules that the wheel and the editable install put at the top level."""
