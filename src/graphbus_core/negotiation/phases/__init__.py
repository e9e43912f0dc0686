"""What happens in each phase of a round: the questions on entering it, and what each reply does. Pure.

`engine.py` holds the tables that say which function is for which phase and reply.
"""
