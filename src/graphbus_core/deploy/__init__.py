"""What leaves the project: images, manifests and pipelines, as pure functions from facts to `{path: text}`.

    artifacts + options  ->  image | kubernetes | pipelines  ->  Files  ->  the command line writes them

Nothing here writes a file of the project, or starts a program. Each kind of file has a template in `templates/`.
"""
