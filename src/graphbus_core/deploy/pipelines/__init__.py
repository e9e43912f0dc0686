"""Pipelines: what a forge does with each pull request and with each commit on main, as data.

    Plan  ->  steps (the same for every forge)  ->  github | gitlab  ->  Files

`pins` names what is taken from others, each by its digest. A value that nobody has checked never gets into a script: names and
paths are checked when the plan is made, and what is only known on the runner comes in a variable.
"""
