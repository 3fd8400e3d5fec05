"""Where it runs: sessions, notebooks, OneLake, connectors, and the demo."""
