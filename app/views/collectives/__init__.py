"""Collectives of a job: who comes last, who holds up a hang, what bandwidth there is."""
