"""Models behind one seam: `client.LLMClient`; its back ends, retries, cache and prices."""
