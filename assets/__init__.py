"""One thin file per stage: take a resource, call the models, return metadata."""
