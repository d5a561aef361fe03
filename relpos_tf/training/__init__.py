"""Training: updates, evaluation, several devices and hosts."""
