"""Keys that survive transformations: what a DataFrame's columns still identify, read from its plan."""
