"""Deliver change feeds to consumers that outlive every run, window by window.

A consumer is a name; its way through one table is a stream. `record` says what is kept of it,
`registry` keeps it beside the target, `lease` keeps two runners apart, `deliver` plans windows and
carries them out, `run` does so for many tables side by side, `sinks` are the receivers.
"""
