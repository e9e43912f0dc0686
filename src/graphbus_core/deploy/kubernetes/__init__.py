"""Manifests for Kubernetes 1.30 or newer: a plan of what shall run becomes the files of a kustomization.

plan (checked)  ->  manifests: objects of the API  ->  yaml.render  ->  files
"""
