"""Who says what to whom: engine and votes (pure), agents, driver, transcript."""
