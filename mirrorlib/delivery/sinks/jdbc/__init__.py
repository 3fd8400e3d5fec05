"""Keep copies of tables in a database: PostgreSQL, or SQLite, which needs no server.

Delivery: exactly once, as a window and the stream's position are committed in one transaction. `kinds` says what
becomes of the types, `layout` what is refused, `stage` what of a window counts; docs/export.md what users find there.
"""
