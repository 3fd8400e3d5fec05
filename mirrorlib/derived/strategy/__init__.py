"""How a derived table is brought up to date: row by row, by keys, or in full."""
