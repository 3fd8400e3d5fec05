"""One batch: opened, folded, staged, the table evolved for it, and committed once."""
