"""The Delta table: its log, columns, properties, SQL, sessions and lock; knows no wing above."""
