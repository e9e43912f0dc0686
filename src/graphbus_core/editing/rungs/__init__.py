"""What the gate looks at, rung by rung."""
