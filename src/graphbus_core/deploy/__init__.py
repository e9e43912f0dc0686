"""What leaves the project: images, manifests and pipelines, as pure functions from facts to `{path: text}`.

    artifacts + options  ->  docker | kubernetes | pipelines  ->  Files  ->  the command line writes them

Nothing here reads or writes a file, or starts a program. YAML is data until `yaml.render` makes text of it.
"""
