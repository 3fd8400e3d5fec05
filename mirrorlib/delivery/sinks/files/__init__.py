"""Receive windows as files; see `sink` for what lies where, and `parts` for what a format makes of a value."""
