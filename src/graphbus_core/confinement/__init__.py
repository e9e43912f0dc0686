"""What keeps a process within the powers that a person has declared: rules of the kernel, and a hook in the interpreter."""
