"""The figures themselves. Order: both straggler studies, then failures, then remedies."""

from __future__ import annotations

from functools import cache

from steptax.app.compute.measure import Measure
from steptax.app.compute.mfu.peaks import peak
from steptax.app.format import format_value
from steptax.app.reference import Computed, Misquote, ReferenceFigure, computed

_RUN_GPUS = 16_384
_RUN_H = 54 * 24
_UNEXPECTED = 419
_ALL = 466


@cache
def reference_figures() -> tuple[ReferenceFigure, ...]:
    """Every figure, with what follows from it as the calculators have it."""
    return (*_what_if_analysis(), *_falcon(), *_llama3(), *_byterobust(), *_stragglar())


def _waste(slowdown: float, template: str) -> Computed:
    return computed("waste", "waste_ratio", template, slowdown=slowdown)


def _share(part: int, whole: int, template: str, *, sample: bool = False) -> Computed:
    """A share; of a sample with its 95 % interval (Clopper and Pearson 1934)."""

    def read(measures: dict[str, Measure]) -> str:
        rate = measures["slow_ratio"]
        text = format_value(rate.value, "ratio")
        if not sample:
            return text
        low, high = (format_value(end, "ratio") for end in (rate.low, rate.high))
        return f"{text} ({low} to {high}, 95 %)"

    return computed("any-slow", read, template, ranks=1, observed_ranks=whole, observed_slow=part)


def _interval(count: int, template: str) -> Computed:
    """Time between interruptions of the whole run."""

    def read(measures: dict[str, Measure]) -> str:
        return f"{measures['mtbf_h'].value:.2f} h"

    return computed(
        "failures",
        read,
        template,
        gpus=_RUN_GPUS,
        observed_failures=count,
        observed_h=_RUN_H,
        observed_gpus=_RUN_GPUS,
    )


def _extra_cost(actual_h: int, template: str) -> Computed:
    """What a 30-day run of 1,024 GPUs costs beyond its plan, at $2.00 to $3.50."""

    def read(measures: dict[str, Measure]) -> str:
        cost = measures["extra_usd"]
        low, high = (format_value(end, "USD", full=True) for end in (cost.low, cost.high))
        return f"{low.removesuffix('.00')} to {high.removesuffix('.00')}"

    return computed(
        "waste",
        read,
        template,
        planned_h=720,
        actual_h=actual_h,
        gpus=1024,
        usd_per_gpu_hour=2.0,
        usd_per_gpu_hour_high=3.5,
    )


def _of_peak(tflops: float) -> str:
    """A rate of one H100 as a share of its dense peak, from the table of devices."""
    dense = peak("H100 SXM", "bf16").tflops
    assert dense is not None
    return f"Of the dense peak of {dense:g} TFLOP/s it is {format_value(tflops / dense, 'ratio')}."


def _what_if_analysis() -> tuple[ReferenceFigure, ...]:
    scope = "jobs of at least 128 GPUs on this cluster"
    return (
        ReferenceFigure(
            "lin2025",
            "jobs that stragglers slow by 10 % or more (S of at least 1.1)",
            "42.5 % of jobs",
            scope,
            misquotes=(
                Misquote(
                    "a finding of FALCON",
                    "FALCON is another study, of another cluster; 3,079 jobs in five months are "
                    "the study of OSDI'25.",
                ),
            ),
            follows=(_waste(1.1, "S = 1.1 is a waste of {}"),),
        ),
        ReferenceFigure(
            "lin2025",
            "GPU time that stragglers waste",
            "10.4 % of all allocated GPU-hours",
            scope,
            misquotes=(
                Misquote(
                    "42.5 % of the GPU time is wasted",
                    "42.5 % is a share of jobs; of GPU-hours it is 10.4 %.",
                ),
            ),
        ),
        ReferenceFigure(
            "lin2025",
            "waste of the worst jobs",
            "21.3 % or more in over 10 % of jobs, 45.0 % or more in about 1 %",
            scope,
            misquotes=(
                Misquote(
                    "jobs waste as much as 45 %",
                    "45.0 % is where the worst 1 % begins, not where it ends; slowdowns above 3 "
                    "occur.",
                ),
            ),
            follows=(_waste(3.0, "S = 3 is a waste of {}"),),
        ),
        ReferenceFigure(
            "lin2025",
            "straggling jobs in which slow workers explain most of the slowdown",
            "1.7 % of straggling jobs, with S = 3.04 against 1.28 on average",
            "straggling jobs on this cluster",
            misquotes=(
                Misquote(
                    "faulty servers do not matter",
                    "They are rarely the main cause here, and the worst one where they are.",
                ),
            ),
            follows=(
                _waste(3.04, "S = 3.04 is a waste of {}"),
                _waste(1.28, "S = 1.28 is a waste of {}"),
            ),
        ),
        ReferenceFigure(
            "lin2025",
            "the last pipeline stage is the main cause",
            "39.3 % of jobs",
            scope,
            "section 5.2",
        ),
        ReferenceFigure(
            "lin2025",
            "sequence-length imbalance",
            "21.4 % of jobs, S = 1.34 on average",
            scope,
            "section 5.3",
            follows=(_waste(1.34, "S = 1.34 is a waste of {}"),),
        ),
        ReferenceFigure(
            "lin2025",
            "slowdown against the size of the job",
            "no positive correlation",
            scope,
            "section 4.4",
            misquotes=(
                Misquote(
                    "scaling out makes stragglers worse",
                    "Not in this study: slowdown did not rise with the number of GPUs.",
                ),
            ),
        ),
    )


def _falcon() -> tuple[ReferenceFigure, ...]:
    large = "27 jobs of 512 to 1,024 GPUs, one month, one cluster"
    return (
        ReferenceFigure(
            "wu2024",
            "large jobs with a fail-slow",
            "16 of 27",
            large,
            "Table 1",
            misquotes=(
                Misquote(
                    "60 % of large jobs have slow GPUs",
                    "In 13 of the 16 only the network was congested, in 3 network and GPUs were "
                    "slow; in none were GPUs alone.",
                ),
            ),
            follows=(_share(16, 27, "a share of {}", sample=True),),
        ),
        ReferenceFigure(
            "wu2024",
            "longer completion of large jobs",
            "34.59 % on average",
            large,
            "Table 1",
            misquotes=(
                Misquote(
                    "34 % of every large cluster is wasted",
                    "34.59 % is how much longer jobs took; of the GPU time that was paid it is "
                    "less, and it is about these jobs.",
                ),
                Misquote(
                    "1.34 %",
                    "Some listings print 1.34 % where the paper has a factor of 1.34.",
                ),
                Misquote(
                    "40 days instead of 30 on 1,024 GPUs waste $590,000 to $1.03 million",
                    "Those amounts are for 12 further days; ten cost less.",
                ),
            ),
            follows=(
                _waste(1.3459, "a waste of {} of GPU time"),
                _extra_cost(960, "10 further days of 1,024 GPUs cost {} at $2.00 to $3.50"),
                _extra_cost(1008, "12 further days cost {}"),
            ),
        ),
        ReferenceFigure(
            "wu2024",
            "longer completion of small probes",
            "11.79 % on one node, 15.45 % on four",
            "6 of 392 and 43 of 107 probes had a fail-slow",
            "Table 1",
            follows=(
                _share(6, 392, "one node: {} of probes", sample=True),
                _share(43, 107, "four nodes: {} of probes", sample=True),
                _waste(1.1179, "one node: a waste of {}"),
                _waste(1.1545, "four nodes: a waste of {}"),
            ),
        ),
        ReferenceFigure(
            "wu2024",
            "length of a fail-slow",
            "72 minutes on average",
            f"{large}; 10 and 24 minutes in the small probes",
            "Table 1",
        ),
        ReferenceFigure(
            "wu2024",
            "jobs delayed by more than half",
            "20 %",
            "jobs with a fail-slow",
            misquotes=(
                Misquote(
                    "one in five lost more than half of its GPU time",
                    "Half as long again is a third of the time that was paid.",
                ),
            ),
            follows=(_waste(1.5, "1.5 times as long is a waste of {}"),),
        ),
    )


def _llama3() -> tuple[ReferenceFigure, ...]:
    run = "54 days on up to 16,384 H100"
    return (
        ReferenceFigure(
            "llama3",
            "unexpected interruptions",
            "419",
            run,
            "Table 5",
            misquotes=(
                Misquote(
                    "a hardware failure every 2.78 h",
                    "That is 54 days over all 466 interruptions, the 47 planned ones and those of "
                    "software included.",
                ),
                Misquote(
                    "found by ByteRobust",
                    "ByteRobust cites it; the run is Meta's.",
                ),
            ),
            follows=(
                _interval(_UNEXPECTED, "one every {}"),
                computed(
                    "failures",
                    lambda m: f"{m['mtbf_gpu_h'].value:,.0f} h",
                    "one every {} of a single GPU",
                    gpus=_RUN_GPUS,
                    observed_failures=_UNEXPECTED,
                    observed_h=_RUN_H,
                    observed_gpus=_RUN_GPUS,
                ),
            ),
        ),
        ReferenceFigure(
            "llama3",
            "all interruptions, planned ones included",
            "466",
            run,
            follows=(_interval(_ALL, "one every {}"),),
        ),
        ReferenceFigure(
            "llama3",
            "effective training time",
            "over 90 %",
            f"{run}; people had to step in at length three times, the rest was automated",
        ),
        ReferenceFigure(
            "llama3",
            "interruptions by confirmed or suspected hardware",
            "328 of 419, printed as 78 %",
            "all rows of the table but software, dependencies and network",
            "Table 5",
            misquotes=(
                Misquote(
                    "78 % were hardware that degraded rather than broke",
                    "The paper counts confirmed and suspected hardware issues of all kinds.",
                ),
            ),
            follows=(_share(328, 419, "{} of interruptions"),),
        ),
        ReferenceFigure(
            "llama3",
            "interruptions by a faulty GPU",
            "148 of 419",
            run,
            "Table 5",
            misquotes=(
                Misquote(
                    "30.1 %",
                    "The table prints 30.1 % beside a count of 148 of 419; its percentages add up "
                    "to 94.9 %. The counts add up.",
                ),
            ),
            follows=(_share(148, 419, "{} of interruptions"),),
        ),
        ReferenceFigure(
            "llama3",
            "interruptions by anything of the GPU, its memory included",
            "268 of 419",
            run,
            "Table 5",
            misquotes=(Misquote("58.7 %", "It inherits the misprint of the line above."),),
            follows=(_share(268, 419, "{} of interruptions"),),
        ),
        ReferenceFigure(
            "llama3",
            "MFU",
            "38 to 43 %, BF16",
            "within steps, of the dense peak; restarts and idle time are not in it",
            "Table 4",
            misquotes=(
                Misquote(
                    "41 % at 400 TFLOP/s",
                    _of_peak(400.0),
                ),
            ),
        ),
    )


def _byterobust() -> tuple[ReferenceFigure, ...]:
    scope = "778,135 jobs of three months"
    return (
        ReferenceFigure(
            "byterobust",
            "failures that were identified",
            "38,236 explicit and 5,948 implicit, as the text states",
            f"{scope}; the rows of the table add up to 39,687 and 6,096",
            "text and Table 1",
            misquotes=(
                Misquote(
                    "implicit failures are GPUs that run slowly",
                    "Nearly all of them are jobs that hang; a decline of MFU is rare.",
                ),
                Misquote(
                    "a hardware failure every 2.78 h on 16,000 GPUs",
                    "Cited from Meta, where it counts all interruptions.",
                ),
            ),
            follows=(
                _share(5_506, 6_096, "hangs: {} of the implicit ones"),
                _share(442, 55_365, "decline of MFU: {} of all incidents"),
            ),
        ),
        ReferenceFigure(
            "byterobust",
            "effective training time ratio",
            "up to 97 %",
            "one job on 9,600 GPUs",
        ),
    )


def _stragglar() -> tuple[ReferenceFigure, ...]:
    ring = {"size_bytes": 2**30, "link_gb_per_s": 450 * 2**30 / 1e9, "alpha_us": 3}
    return (
        ReferenceFigure(
            "stragglar",
            "faster all-reduce around one late rank",
            "22 % (first version), 25 % (second version)",
            "8 GPUs of one server; the late rank must be late for long enough",
            misquotes=(
                Misquote(
                    "twice as fast training",
                    "The factor of two is the limit of a simulated all-reduce over ever more "
                    "ranks; the step around it does not get faster by it.",
                ),
                Misquote("by a Stanford team", "The authors are at Cornell University."),
            ),
            follows=(
                computed("stragglar", "all_reduce_speedup", "8 ranks, 1 GiB: {}", ranks=8, **ring),
                computed(
                    "stragglar", "all_reduce_speedup", "256 ranks, 1 GiB: {}", ranks=256, **ring
                ),
            ),
        ),
        ReferenceFigure(
            "stragglar",
            "faster training end to end",
            "2.4 to 4.75 %",
            "as quoted by others; not checked in the paper",
            mark="second-hand",
        ),
    )
