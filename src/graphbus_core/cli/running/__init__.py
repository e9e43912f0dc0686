"""Additions of the command line to a running graph: calls and events, the prompt, instruments, servers and the watcher."""
