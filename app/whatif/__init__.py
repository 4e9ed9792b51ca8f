"""What-if analysis of per-operation traces: a dependency graph, a simulator, and questions.

After Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis",
OSDI'25. Pure functions over numpy arrays; no clock, no globals; files are only read by
``read_trace``.
"""

from steptax.app.whatif.api import analyse_file, analyse_ops, analyse_trace
from steptax.app.whatif.errors import GraphError
from steptax.app.whatif.report import WhatIfResult
from steptax.app.whatif.trace import JobSizes, Trace, read_trace

__all__ = [
    "GraphError",
    "JobSizes",
    "Trace",
    "WhatIfResult",
    "analyse_file",
    "analyse_ops",
    "analyse_trace",
    "read_trace",
]
