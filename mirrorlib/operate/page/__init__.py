"""The status page: one file of HTML that shows how a target stands, and needs nothing from elsewhere."""
