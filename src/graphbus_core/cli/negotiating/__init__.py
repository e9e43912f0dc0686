"""What a person sees of a negotiation, says to it and reads of it afterwards."""
