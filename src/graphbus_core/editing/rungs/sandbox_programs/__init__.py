"""Programs of ours that run in the sandbox, beside or around the project's code. GraphBus starts them and imports none."""
