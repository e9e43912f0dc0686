"""Programs of GraphBus that run in the sandbox together with project code. GraphBus starts them, and imports none of them."""
