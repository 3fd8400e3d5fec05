"""Which change files come next: the folder, its metadata, its listing, what was applied of it."""
