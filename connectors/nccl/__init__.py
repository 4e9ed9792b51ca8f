"""Evidence of collective communication: inspector, flight recorder, RAS, nccl-tests."""
