"""Three services that say hello, and an arbiter for their negotiations."""
