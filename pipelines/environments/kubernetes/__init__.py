"""The Kubernetes environment: drivers, executors and replays as pods, failures by Chaos Mesh."""
