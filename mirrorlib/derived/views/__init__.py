"""Current views that are kept in a table."""
