"""The control loop: evaluate a job once per interval and apply what was decided."""
