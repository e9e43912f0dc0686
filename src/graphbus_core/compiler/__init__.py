"""From source files to definitions, graph and findings. Reads code with `ast`; never imports or runs it."""
