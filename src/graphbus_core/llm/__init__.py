"""Models behind one interface, `client.LLMClient`, with the clients of providers, retries, caches and prices."""
