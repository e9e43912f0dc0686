"""Types of payloads, arguments and results: below `model/`, so that the bus needs nothing of negotiation to know them."""
