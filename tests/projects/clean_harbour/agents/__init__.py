"""The agents of the harbour."""
