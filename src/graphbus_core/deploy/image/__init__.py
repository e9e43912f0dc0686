"""The image of a graph: a plan of what goes into it becomes a Dockerfile, and the list of what the engine may see.

plan  ->  stages of instructions  ->  Dockerfile
      ->  what is let through     ->  .dockerignore
pins + the project's requirements (checked)  ->  docker/requirements.txt
"""
