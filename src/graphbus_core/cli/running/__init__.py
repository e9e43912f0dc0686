"""What stands around a graph that runs from the command line: its work, prompt, instruments, servers and watcher."""
