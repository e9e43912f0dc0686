"""A news desk: feeds come in, a digest comes out, no network and no model in between."""
