"""Receive windows as change files of a landing zone; see `sink` for what is published when."""
