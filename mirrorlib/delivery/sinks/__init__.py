"""The receivers that come with mirrorlib, a module or package each; `open` chooses one by a URL."""
