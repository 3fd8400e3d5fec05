"""Compare tables with the files they were made of, and consumers' copies with their tables."""
