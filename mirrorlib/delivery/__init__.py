"""Deliver change feeds to consumers that outlive every run: `mirrorlib.export(spark, target, …)`.

A consumer is a name; its way through one table is a stream, cut into windows. `run_stream` plans
windows, `deliver_window` carries one out, `run` does so for many tables side by side, `sinks` are the
receivers. What is kept of a stream is in `mirrorlib.journal`.
"""
