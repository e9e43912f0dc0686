"""Types of payloads, arguments and results: how they are read from annotations, compared, and checked against values."""
