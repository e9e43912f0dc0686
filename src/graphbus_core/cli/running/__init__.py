"""What the command line adds to a running graph: calls and events, the prompt, instruments, servers and the watcher."""
