"""Change files to rows: decoded, cast, their markers read, what does not fit set apart."""
