"""Pipelines: what a forge does with each pull request and with each commit on main.

    Plan  ->  steps (the same for every forge)  ->  github | gitlab  ->  Files

A value that nobody has checked never gets into a script: names and paths are checked when the plan is made, and what is known
only on the runner comes in a variable.
"""
