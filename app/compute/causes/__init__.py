"""Why ranks are slow: from episodes and what was seen beside them to findings."""
