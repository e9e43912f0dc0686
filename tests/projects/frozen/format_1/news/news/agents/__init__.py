"""The agents of the news desk, one file each."""
