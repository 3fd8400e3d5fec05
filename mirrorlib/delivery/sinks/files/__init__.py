"""Receive windows as files; see `sink` for what lies where."""
