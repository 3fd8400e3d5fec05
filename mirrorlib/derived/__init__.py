"""Tables made of other tables' changes, with the keys that survive on the way."""
