"""Where a change file went, and where the rows of a key come from."""
