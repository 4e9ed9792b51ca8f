"""Benchmarks: of the hardware (``hardware``) and of Steptax itself (``product``)."""
