"""A granary: trucks arrive, grain is weighed, lifted and stored; tools of the office stand beside the agents, in lib."""
