"""Steptax: where every GPU-hour and dollar of a training job goes."""

__version__ = "0.1.0"
