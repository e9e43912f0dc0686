"""What a shell asks while somebody types: where the cursor is, which words fit there, and the script that asks."""
