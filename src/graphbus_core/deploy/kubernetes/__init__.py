"""Manifests for Kubernetes: a plan of what shall run becomes the files of a kustomization.

    plan (checked)  ->  topology: which pods  ->  workload, network, surroundings: objects  ->  files: text

An object is a mapping in the shape of the API; `yaml.render` makes text of it. Needs Kubernetes 1.30 or newer.
"""
