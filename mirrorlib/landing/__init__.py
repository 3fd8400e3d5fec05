"""The open mirroring format: what stands in a landing zone, and what it means. Knows no Spark."""
