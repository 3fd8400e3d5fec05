"""Deliver windows to Kafka: one message a change, one transaction a window; docs/export.md says what is in them.

Delivery: exactly once for consumers that read committed messages, each window as a whole, as `receive` says; changes of
one key in the order of their commits, as they lie in one partition while its text is the same.
"""
