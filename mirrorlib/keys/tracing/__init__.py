"""What a plan does to key columns, operator by operator."""
