"""The agents of the pipeline, one file each."""
