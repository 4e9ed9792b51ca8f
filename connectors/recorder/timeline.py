"""Where the time of one step goes: every nanosecond to exactly one bucket.

There is one current bucket at any moment and one moment up to which time has been given out. Each
change gives the time since then to the bucket that was current. Parts are thus disjoint and add up
to the step by construction, however phases nest.
"""

from __future__ import annotations

#: Buckets are positions in the list of times spent.
#: COMM is communication proper; COLLECTIVE is the rank's own time inside a collective, while it has
#: not called the communication library or is through with it.
COMPUTE, COMM, INPUT, CHECKPOINT, H2D, OTHER, GC, HOST, COLLECTIVE = range(9)
#: What a heartbeat calls them. ``host`` is the time of a step that is in no phase.
BUCKET_NAMES = (
    "compute",
    "collective",
    "input",
    "checkpoint",
    "h2d",
    "other",
    "gc",
    "host",
    "collective",
)
BUCKETS = len(BUCKET_NAMES)


class Timeline:
    """Time of the open step, in ns of one monotonic clock; belongs to one thread.

    ``spent_ns[b]`` is the time given to bucket ``b`` so far.
    """

    __slots__ = ("_paused", "begin_ns", "bucket", "mark_ns", "since_ns", "spent_ns", "stack")

    def __init__(self, now_ns: int) -> None:
        self.stack: list[int] = []
        self.begin(now_ns)

    def begin(self, now_ns: int) -> None:
        """Start a step at ``now_ns``, forgetting what was open."""
        self.spent_ns = [0] * BUCKETS
        self.begin_ns = self.mark_ns = self.since_ns = now_ns
        self.bucket = HOST
        self._paused: tuple[int, int] | None = None
        self.stack.clear()

    def enter(self, bucket: int, now_ns: int) -> None:
        """Open a phase inside whatever is open; the outer one stops counting."""
        self.stack.append(bucket)
        # As in _switch; spelled out here and below because these two run ten times in a step.
        elapsed_ns = now_ns - self.mark_ns
        if elapsed_ns > 0:
            self.spent_ns[self.bucket] += elapsed_ns
            self.mark_ns = now_ns
        self.bucket = bucket
        self.since_ns = now_ns

    def leave(self, bucket: int, now_ns: int) -> bool:
        """Close the innermost open phase of this kind and what is open inside it.

        False when that was not the innermost phase, or none of this kind is open.
        """
        stack = self.stack
        if not stack or stack[-1] != bucket:
            if bucket in stack:
                del stack[len(stack) - 1 - stack[::-1].index(bucket) :]
                self._switch(stack[-1] if stack else HOST, now_ns)
            return False
        stack.pop()
        elapsed_ns = now_ns - self.mark_ns
        if elapsed_ns > 0:
            self.spent_ns[self.bucket] += elapsed_ns
            self.mark_ns = now_ns
        self.bucket = stack[-1] if stack else HOST
        self.since_ns = now_ns
        return True

    def replace(self, bucket: int, now_ns: int) -> None:
        """Close the innermost open phase and open another in its place."""
        self.stack[-1] = bucket
        self._switch(bucket, now_ns)

    def move(self, bucket: int, now_ns: int) -> None:
        """Give the time from here on to another bucket, within the phase that is open."""
        self._switch(bucket, now_ns)

    def pause(self, now_ns: int) -> None:
        """The garbage collector has stopped this thread."""
        self._paused = self.bucket, self.since_ns
        self._switch(GC, now_ns)

    def resume(self, now_ns: int) -> None:
        """The garbage collector lets this thread go on; ignored when there was no pause."""
        if self._paused is not None:
            bucket, since_ns = self._paused
            self._switch(bucket, now_ns)
            self.since_ns = since_ns
            self._paused = None

    def end(self, now_ns: int) -> int:
        """Finish the step; returns its duration, which ``spent_ns`` adds up to."""
        self._switch(HOST, now_ns)
        self.stack.clear()
        return self.mark_ns - self.begin_ns

    def _switch(self, bucket: int, now_ns: int) -> None:
        # A collection may run between the reading of the clock and this line. It has then already
        # given out the time up to its own end, which is later than now_ns, and that end holds. No
        # collection can run between the lines below: none of them calls or allocates a container.
        elapsed_ns = now_ns - self.mark_ns
        if elapsed_ns > 0:
            self.spent_ns[self.bucket] += elapsed_ns
            self.mark_ns = now_ns
        self.bucket = bucket
        self.since_ns = now_ns
