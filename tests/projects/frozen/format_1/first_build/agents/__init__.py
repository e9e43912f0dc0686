"""The agents of the shop, one file each."""
