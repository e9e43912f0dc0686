"""Build Mode: fifteen stages from source files to artifacts, with or without agents. Source: seed 001, chapter 1.

    1-7   config -> modules -> classes -> sources -> definitions -> graph -> order        compiler/
    8-12  engine -> agents -> analysis -> conflicts -> rounds of negotiation              negotiation/, editing/
    13-15 promote to the source files -> emit artifacts -> done                           editing/, store

A static build leaves out the stages that need agents. Nothing here imports or runs the code that is built.
"""

from __future__ import annotations
