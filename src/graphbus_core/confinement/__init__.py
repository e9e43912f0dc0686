"""Keeps a process within the declared powers: rules of the Linux kernel, and an audit hook in the interpreter.

    walls     the entry point: applies files, network and program limits through the kernel, for code in any language
    calls     the seccomp filter, built from a table of rules        kernel    system calls that Python has no function for
    hook      the audit hook: precise messages, and the one limit that no kernel knows, host names

The kernel enforces; the hook explains. Native code does not pass through the hook, but it cannot pass the kernel's rules either.
"""
