"""What goes to models and comes from them, as text: the format of answers, data between marks, contracts and memory in words."""
