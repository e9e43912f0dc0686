"""Generates the files for deployment: container images, Kubernetes manifests and CI pipelines.

    artifacts + options  ->  image | kubernetes | pipelines  ->  Files  ->  the command line writes them

All functions are pure: they return path -> content, write nothing and start no program. Each kind of file has a template in
`templates/`.
"""
