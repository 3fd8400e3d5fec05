"""See what stands in a target: which table is where, and why it is not further."""
