"""The GraphBus Negotiation Protocol (GBNP): agents that are programs in any language. docs/protocol/ specifies it.

requirements   the numbered requirements of the specification
messages       the parameters and results of its methods, from which the JSON Schema is made
answers        checks the result of each method against what was asked
conversation   judges the lines of both sides; does no I/O, so host, conformance kit and tests share it
program        a program in the sandbox, with lines over stdin and stdout
agent          the active agent that asks such a program
conformance    `graphbus conform`: plays conversations with a program, and gives a verdict on each requirement
"""
