"""All tables of the lake. Time is int64 microseconds UTC, bytes int64, money Decimal."""

from __future__ import annotations

from steptax.app.schema.table import FLAG, INT, INT32, MONEY, REAL, TEXT, Column, Table

#: Every table ends with where a row came from.
PROVENANCE = (
    Column(
        "source", TEXT, "connector and file or address that the row was read from", nullable=False
    ),
    Column("source_row", INT, "line or row in that source, counted from 1; null when live"),
    Column("ingested_at_us", INT, "when the row was stored", "us", nullable=False),
)


def _key(name: str, doc: str) -> Column:
    return Column(name, TEXT, doc, nullable=False)


def _us(name: str, doc: str, *, nullable: bool = True) -> Column:
    return Column(name, INT, doc, "us", nullable=nullable)


def _int(name: str, doc: str, unit: str = "", *, nullable: bool = True) -> Column:
    return Column(name, INT, doc, unit, nullable=nullable)


def _real(name: str, doc: str, unit: str = "") -> Column:
    return Column(name, REAL, doc, unit)


def _text(name: str, doc: str) -> Column:
    return Column(name, TEXT, doc)


def _money(name: str, doc: str) -> Column:
    return Column(name, MONEY, doc, "in currency")


_JOB = _key("job_id", "the job, as its scheduler or its owner names it")
_RANK = Column("rank", INT32, "global rank", nullable=False)
_TOPOLOGY = tuple(
    Column(name, INT32, doc)
    for name, doc in (
        ("tp", "tensor parallel"),
        ("pp", "pipeline parallel"),
        ("dp", "data parallel"),
        ("cp", "context parallel"),
        ("ep", "expert parallel"),
    )
)

JOBS = Table(
    "jobs",
    1,
    "One row per job and state of knowledge about it; the newest row of a job holds.",
    ("job_id",),
    (
        _JOB,
        _text("name", "human name"),
        _text("team", "who pays"),
        _text("project", "project"),
        _text("cluster", "cluster"),
        _text("owner", "user"),
        _text("framework", "training framework"),
        _text("state", "running, completed, failed, cancelled, timeout, pending; null = unknown"),
        _text("state_detail", "the state in its scheduler's own word, e.g. OUT_OF_MEMORY"),
        _us("submit_us", "submitted"),
        _us("start_us", "allocated"),
        _us("end_us", "released; null while running or unknown"),
        _text("gpu_model", "device as it reports itself; null when there is none or it is unknown"),
        _int("world_size", "ranks, each holding one device", "ranks"),
        *(Column(f"{c.name}_size", INT32, f"{c.doc} size") for c in _TOPOLOGY),
        Column("vpp_size", INT32, "virtual pipeline stages per stage"),
        Column("dsp_size", INT32, "data-sequence parallel size"),
        Column("micro_batches", INT32, "micro-batches per step"),
        _int("tokens_per_step", "tokens per optimiser step", "tokens"),
        _int("target_steps", "optimiser steps that the run is planned to take", "steps"),
        _int("params_total", "parameters", "parameters"),
        _int("params_active", "parameters that a token meets", "parameters"),
        *(
            _int(name, doc)
            for name, doc in (
                ("layers", "transformer layers"),
                ("hidden", "hidden size"),
                ("ffn", "feed-forward size"),
                ("heads", "attention heads"),
                ("kv_heads", "key/value heads"),
                ("vocab", "padded vocabulary"),
                ("seq_len", "sequence length"),
                ("experts", "experts per layer"),
                ("topk", "experts per token"),
            )
        ),
        Column("causal", FLAG, "causal attention"),
        _text("recompute", "none, selective, full"),
        _text("dtype", "matrix-multiply precision"),
        _text("attempt_of", "job that this one is a further attempt of"),
        _real("gpu_hours", "GPU-hours as the source states them", "GPU-hours"),
        _text(
            "time_basis",
            "'wall' = real time; 'log' = real time of the job's steps as its log prints them, not "
            "of each rank; 'relative' = durations are normalised",
        ),
        _text("account", "charge account, as text"),
        _text("period", "billing period as the source states it, when it has no dates"),
        _text("hosts", "nodes whose devices it held, as its scheduler names them, by commas"),
        Column("is_sum", FLAG, "it sums the usage of many jobs, and is none; null = it is one job"),
        *PROVENANCE,
    ),
    latest_wins=True,
    # A file of steps or a log knows one attempt of a job, accounting all of its time.
    earliest=("submit_us", "start_us"),
    latest=("end_us",),
)

RANKS = Table(
    "ranks",
    1,
    "Where each rank runs and its place in the parallel groups.",
    ("job_id", "rank"),
    (
        _JOB,
        _RANK,
        _text("host", "node name"),
        Column("local_rank", INT32, "rank on its node"),
        _text("gpu_uuid", "device identity"),
        Column("gpu_index", INT32, "device index on its node"),
        *_TOPOLOGY,
        _int("pid", "process id"),
        *PROVENANCE,
    ),
    by_job=True,
    latest_wins=True,
)

STEPS = Table(
    "steps",
    1,
    "One row per job, attempt, step and rank. Phases are disjoint parts of the duration; a null "
    "phase was not measured.",
    ("job_id", "attempt", "step", "rank"),
    (
        _JOB,
        Column("attempt", INT32, "attempt number, from 0", nullable=False),
        Column("step", INT, "optimiser step", nullable=False),
        _RANK,
        _us("start_us", "step start on this rank's clock"),
        _us("duration_us", "step start to step end on this rank", nullable=False),
        _us("compute_us", "forward, backward, optimiser: the rank's own computing"),
        _us("comm_us", "exposed communication as measured on this rank: transfer and waiting"),
        _us("transfer_us", "part of comm_us after the last peer had arrived"),
        _us("wait_us", "part of comm_us before the last peer had arrived"),
        _us("input_us", "waiting for data"),
        _us("checkpoint_us", "blocking part of a checkpoint"),
        _us("h2d_us", "host to device copies"),
        _us("gc_us", "garbage collector pauses"),
        _us("other_us", "measured, but none of these"),
        _us(
            "collective_us",
            "own time inside a collective, not in comm_us: before the rank had called the "
            "communication library, or behind its calls; null = not told from comm_us",
        ),
        _int("tokens", "tokens of this rank in this step", "tokens"),
        _int("seq_sq_sum", "sum of squared sequence lengths", "tokens^2"),
        _real("loss", "training loss"),
        *PROVENANCE,
    ),
    by_job=True,
)

OPS = Table(
    "ops",
    1,
    "One row per operation of a profiled step.",
    ("job_id", "step", "rank", "op_id"),
    (
        _JOB,
        Column("step", INT, "optimiser step", nullable=False),
        _RANK,
        _int("op_id", "operation number inside its step and rank", nullable=False),
        Column("op_type", TEXT, "forward-compute, backward-send, ...", nullable=False),
        _text("name", "kernel or function name"),
        _text("stream", "device stream or host thread"),
        Column("dp", INT32, "data parallel rank"),
        Column("pp", INT32, "pipeline stage"),
        Column("micro_batch", INT32, "micro-batch; null where none applies"),
        Column("model_chunk", INT32, "virtual stage inside its stage"),
        Column("global_chunk", INT32, "virtual stage over all stages"),
        _text("group", "communicator"),
        _int("seq", "sequence number inside its type or communicator"),
        _int("bytes", "message size", "bytes"),
        # Nanoseconds: sources give fractions of a microsecond, and a trace must come back exact.
        Column(
            "start_ns", INT, "start; relative to the step where the source is", "ns", nullable=False
        ),
        Column("duration_ns", INT, "duration", "ns", nullable=False),
        Column("launch_ns", INT, "when its host launched it, as start_ns; null = not told", "ns"),
        *PROVENANCE,
    ),
    by_job=True,
)

COLLECTIVES = Table(
    "collectives",
    2,
    "One row per collective (or send or receive) and rank.",
    ("job_id", "comm_id", "op", "seq", "rank"),
    (
        _JOB,
        _key("comm_id", "communicator"),
        # Sources number each kind of operation on its own.
        _key("op", "all_reduce, all_gather, ...; 'send 0->3', 'recv 3<-0'"),
        _int("seq", "sequence number of the operation in the communicator", nullable=False),
        Column("rank", INT32, "rank, in the sense of rank_scope", nullable=False),
        _text("rank_scope", "'global', or 'communicator' = rank inside the communicator"),
        _text("name", "operation as its source names it"),
        _text("dtype", "element type"),
        _int("bytes", "whole result of an all-gather, whole input of the others", "bytes"),
        _text("shape", "sizes of input and output, as the source gives them"),
        Column("n_ranks", INT32, "ranks in the communicator"),
        _us("enqueued_us", "when the rank issued it, on its own clock"),
        _us("start_us", "start"),
        _us("duration_us", "duration, with the waiting for peers"),
        _text("state", "scheduled, started, completed, as the source last saw it"),
        _text("timing", "what measured the duration: kernel_gpu, kernel_cpu, collective_cpu"),
        _real("algbw_gb_per_s", "bytes / time", "GB/s"),
        _real("busbw_gb_per_s", "algbw times the collective's factor", "GB/s"),
        *PROVENANCE,
    ),
    by_job=True,
)

LINK_PROBES = Table(
    "link_probes",
    1,
    "What a recorder's link probe measured: one row per probe, rank and neighbour. Both ends of a "
    "link give a row.",
    ("job_id", "attempt", "step", "rank", "peer"),
    (
        _JOB,
        Column("attempt", INT32, "attempt number, from 0", nullable=False),
        Column("step", INT, "optimiser step in which it was probed", nullable=False),
        _RANK,
        Column("peer", INT32, "global rank at the other end", nullable=False),
        _int("bytes", "size of the message in each direction", "bytes"),
        _us(
            "duration_us",
            "both send and receive it at the same time, until both messages are there: the "
            "shortest of several exchanges",
            nullable=False,
        ),
        *PROVENANCE,
    ),
    by_job=True,
)

COMMUNICATORS = Table(
    "communicators",
    1,
    "What was last known of a communicator at one of its ranks.",
    ("job_id", "comm_id", "rank"),
    (
        _JOB,
        _key("comm_id", "communicator"),
        Column("rank", INT32, "rank in the sense of rank_scope; -1 = said of all", nullable=False),
        _text("rank_scope", "'global', or 'communicator' = rank inside the communicator"),
        _text("name", "what the communicator is for, e.g. TENSOR_MODEL_PARALLEL_GROUP"),
        Column("n_ranks", INT32, "ranks in the communicator"),
        Column("n_nodes", INT32, "nodes that it spans"),
        _text("members", "global ranks, comma separated; null = unknown"),
        _text("host", "node name or address"),
        _int("pid", "process id"),
        _text("device", "device of the rank"),
        _int("last_enqueued", "number of the newest operation that the rank issued"),
        _int("last_started", "number of the newest operation that started"),
        _int("last_completed", "number of the newest operation that completed"),
        _text("op_counts", "operations launched, by kind: JSON object"),
        _text("state", "RUNNING, INIT, ABORT, NOCOMM, UNRESPONSIVE, DEAD, an error, ..."),
        _text("library", "communication library and version"),
        *PROVENANCE,
    ),
    by_job=True,
    latest_wins=True,
)

DEVICE_SAMPLES = Table(
    "device_samples",
    1,
    "What a device said of itself at a moment.",
    ("host", "gpu_uuid", "ts_us"),
    (
        _key("host", "node name"),
        _key("gpu_uuid", "device identity"),
        _us("ts_us", "moment", nullable=False),
        _real("util_ratio", "share of time with a kernel resident; not efficiency", "ratio"),
        _real("sm_active_ratio", "share of SM cycles active", "ratio"),
        _real("tensor_active_ratio", "share of tensor-pipe cycles active", "ratio"),
        _int("memory_used_bytes", "device memory in use", "bytes"),
        _real("power_w", "power", "W"),
        _real("energy_j", "energy counter since driver load", "J"),
        _real("temperature_c", "device temperature", "degC"),
        _real("sm_clock_mhz", "SM clock", "MHz"),
        _int("throttle_reasons", "bit mask, as the driver gives it", "bits"),
        _int("ecc_corrected", "corrected errors", "errors"),
        _int("ecc_uncorrected", "uncorrected errors", "errors"),
        _int("xid", "last Xid code"),
        Column("pcie_gen", INT32, "PCIe generation now"),
        Column("pcie_width", INT32, "PCIe lanes now", "lanes"),
        _int("nvlink_errors", "NVLink errors", "errors"),
        Column("gpu_index", INT32, "index on its node as the monitor counts; no identity"),
        _text("gpu_model", "device as it reports itself"),
        _text("health", "what is wrong: lost, unknown error, power sensor error, ...; null = none"),
        Column("mig_enabled", FLAG, "split into MIG instances; the row is of the whole device"),
        _int("memory_total_bytes", "device memory", "bytes"),
        _real("memory_temperature_c", "temperature of the memory", "degC"),
        _real("memory_clock_mhz", "memory clock", "MHz"),
        _real("power_limit_w", "power limit in force", "W"),
        _int("remapped_rows", "memory rows remapped after errors", "rows"),
        Column("pcie_gen_max", INT32, "PCIe generation that device and slot can do"),
        Column("pcie_width_max", INT32, "PCIe lanes that device and slot have", "lanes"),
        Column("nvlink_up", INT32, "NVLink links that are up", "links"),
        Column("processes", INT32, "compute processes on it", "processes"),
        *PROVENANCE,
    ),
)

PORT_SAMPLES = Table(
    "port_samples",
    1,
    "What a port of a network adapter said of itself at a moment; counters as the adapter counts.",
    ("host", "device", "port", "ts_us"),
    (
        _key("host", "node name"),
        _key("device", "adapter, e.g. mlx5_0"),
        _key("port", "port of the adapter"),
        _us("ts_us", "moment", nullable=False),
        _real("rate_bytes_per_s", "speed of the link", "bytes/s"),
        _int("received_bytes", "received since the adapter was reset", "bytes"),
        _int("transmitted_bytes", "transmitted since the adapter was reset", "bytes"),
        _int("errors_received", "packets received with an error", "packets"),
        _int("discards_received", "packets received and discarded", "packets"),
        _int("discards_transmitted", "packets that could not be sent", "packets"),
        _int("link_downed", "times the link went down", "times"),
        _int("link_recovered", "times the link recovered by itself", "times"),
        _int("transmit_wait_ticks", "ticks with data to send and no credit", "ticks"),
        Column("state_id", INT32, "logical state; 4 = active"),
        Column("physical_state_id", INT32, "physical state; 5 = link up"),
        *PROVENANCE,
    ),
)

NODES = Table(
    "nodes",
    1,
    "Nodes of a cluster and what they hold, as an inventory lists them; the newest row holds.",
    ("cluster", "host"),
    (
        _key("cluster", "cluster or pool"),
        _key("host", "node name"),
        _text("gpu_model", "device; null where the node has none or it is not told"),
        Column("gpus", INT32, "devices of the node; 0 = none", nullable=False),
        _real("cpus", "processors", "CPUs"),
        _int("memory_bytes", "memory of the node", "bytes"),
        _us("listed_us", "when it was listed"),
        *PROVENANCE,
    ),
    latest_wins=True,
)

EVENT_KINDS = (
    "allocated",
    "process_start",
    "first_step",
    "checkpoint_save",
    "checkpoint_restore",
    "failure",
    "rollback",
    "restart",
    "eval",
    "pause",
    "evict",
    "maintenance",
    "process_end",
)

EVENTS = Table(
    "events",
    1,
    "What happened to a job between steps.",
    ("job_id", "attempt", "start_us", "kind"),
    (
        _JOB,
        Column("attempt", INT32, "attempt number, from 0", nullable=False),
        _us("start_us", "begin", nullable=False),
        _key(
            "kind",
            ", ".join(EVENT_KINDS),
        ),
        _us("end_us", "end; null for a moment"),
        _text("ranks", "ranks concerned, comma separated; null = all"),
        _text("detail", "free text"),
        *PROVENANCE,
    ),
    by_job=True,
)

PRINTED_METRICS = Table(
    "printed_metrics",
    1,
    "What a log or a file of scalars states itself, as it is printed: kept beside what is computed "
    "here and never mixed with it.",
    ("job_id", "attempt", "step", "subject", "name"),
    (
        _JOB,
        Column("attempt", INT32, "attempt number, from 0", nullable=False),
        Column("step", INT, "newest optimiser step when it was printed; 0 = none", nullable=False),
        _key("subject", "whom it speaks of: job, rank 3, min over ranks, max over ranks, ..."),
        _key("name", "loss, mfu, tflops_per_gpu, ...; else the name as printed"),
        Column("rank", INT32, "global rank that it speaks of; null = the job, or not told"),
        _real("value", "the number; null where none is printed, such as N/A"),
        _text("unit", "unit as printed"),
        _text("text", "the value, letter by letter"),
        _text("printed_as", "the name, letter by letter"),
        _us("at_us", "moment of its line, by the clock of the log"),
        _int("interval_steps", "steps that a mean is over; null = not known", "steps"),
        *PROVENANCE,
    ),
    by_job=True,
)

REPORTED_SCORES = Table(
    "reported_scores",
    1,
    "Scores of ranks as a straggler report of another tool gives them. Reports list a few ranks "
    "only: a rank that is absent is not therefore sound.",
    ("job_id", "attempt", "report", "metric", "listed", "rank"),
    (
        _JOB,
        Column("attempt", INT32, "attempt number, from 0", nullable=False),
        _key("report", "which report: its moment, or its file and line"),
        _key("metric", "relative score, individual score, throughput, round trip, ..."),
        _key("listed", "why the rank is listed: lowest, highest, flagged"),
        _RANK,
        _text("tool", "nvrx, megatron"),
        _us("at_us", "moment of the report, by the clock of the log"),
        Column("step", INT, "newest optimiser step when it was printed; null = not known"),
        _text("host", "node name"),
        _real("score", "the value; null where the report flags a rank without one, or says nan"),
        _text("unit", "unit of the score"),
        Column("flagged", FLAG, "named by the tool as slow; null = it gives scores only"),
        _int("ranks_total", "ranks that the report is about", "ranks"),
        *PROVENANCE,
    ),
    by_job=True,
)

CHARGES = Table(
    "charges",
    1,
    "Lines of a bill, in the FOCUS columns that we use.",
    ("provider", "invoice", "line"),
    (
        _key("provider", "who bills"),
        _key("invoice", "invoice"),
        _key("line", "line identity"),
        _us("billing_start_us", "billing period start"),
        _us("billing_end_us", "billing period end"),
        _us("charge_start_us", "charge period start"),
        _us("charge_end_us", "charge period end"),
        _money("billed_cost", "cash basis, as invoiced"),
        _money("effective_cost", "amortised"),
        _money("list_cost", "public price times quantity"),
        _money("contracted_cost", "negotiated price times quantity"),
        _text("currency", "ISO 4217"),
        _text("resource_id", "resource"),
        _text("sub_account_id", "sub-account"),
        _text("sku_id", "SKU"),
        _text("service_name", "service"),
        _text("charge_category", "Usage, Purchase, Tax, Credit, Adjustment"),
        _text("pricing_category", "Standard, Dynamic, Committed, Other"),
        _text("commitment_status", "Used, Unused"),
        _text("reservation_status", "Used, Unused"),
        _real("consumed_quantity", "quantity"),
        _text("consumed_unit", "unit of the quantity"),
        _text("tags", "JSON object"),
        _text("billing_account", "whom the provider bills"),
        *PROVENANCE,
    ),
)

CHARGE_STATES = Table(
    "charge_states",
    1,
    "Lines of a bill that a later delivery of it tells again, or replaces.",
    ("provider", "invoice", "line"),
    (
        _key("provider", "who bills"),
        _key("invoice", "invoice"),
        _key("line", "line identity"),
        Column("counts", FLAG, "whether the line counts", nullable=False),
        _text("file", "of a line that does not count: the source that it is of"),
        _text(
            "held_for",
            "source of another kind of file that tells of the same and counts; empty = none",
        ),
        _text("told_by", "of a line that counts: the delivery that told it last"),
        _text(
            "part",
            "which cost of the line counts where a billed and an amortised export are joined: "
            "billed, effective; empty = both",
        ),
        *PROVENANCE,
    ),
    latest_wins=True,
)

_OFFER = (
    _key("provider", "seller"),
    _key("gpu_model", "device"),
    _key("form_factor", "SXM, PCIe, NVL, ..."),
    _key("region", "region"),
    _key("term", "on-demand, spot, 1y, 3y, ..."),
    _key("segment", "hyperscaler, neocloud, marketplace, ..."),
    _key("observed_on", "ISO date"),
)
_OFFER_KEY = tuple(column.name for column in _OFFER)

PRICES = Table(
    "prices",
    1,
    "Dated offers.",
    _OFFER_KEY,
    (
        *_OFFER,
        Column("usd_per_gpu_hour", MONEY, "price", "USD/GPU-hour"),
        _text("source_url", "where it was seen"),
        _text("held_because", "why it had been held before a person accepted it"),
        _text("accepted_by", "who accepted it, or entered it by hand"),
        *PROVENANCE,
    ),
    latest_wins=True,
)

HELD_PRICES = Table(
    "held_prices",
    1,
    "Dated offers that look wrong and do not count until a person accepts them.",
    (*_OFFER_KEY, "usd_per_gpu_hour"),
    (
        *_OFFER,
        Column("usd_per_gpu_hour", MONEY, "price", "USD/GPU-hour", nullable=False),
        _text("source_url", "where it was seen"),
        _text("held_because", "why it is held"),
        *PROVENANCE,
    ),
    latest_wins=True,
)

BENCH_RESULTS = Table(
    "bench_results",
    1,
    "Results of hardware benchmarks.",
    ("run_id", "host", "gpu_uuid", "test", "size", "dtype"),
    (
        _key("run_id", "run"),
        _key("host", "node name"),
        _key("gpu_uuid", "device identity"),
        _key("test", "gemm, memory, all_reduce, ..."),
        _key("size", "shape or bytes"),
        _key("dtype", "element type"),
        _real("value", "headline"),
        _text("unit", "unit of value, p5, p50, p95, p99"),
        _real("p5", "5th percentile"),
        _real("p50", "median"),
        _real("p95", "95th percentile"),
        _int("n", "samples"),
        _real("clock_mhz", "mean SM clock in the window", "MHz"),
        _real("power_w", "mean power in the window", "W"),
        _real("temperature_c", "highest temperature in the window", "degC"),
        _text("software", "versions, JSON"),
        Column("ranks", INT32, "ranks that took part, each with one device"),
        Column("nodes", INT32, "nodes that took part"),
        _int("wrong", "results outside their bounds; null = not checked", "elements"),
        _real("p99", "99th percentile"),
        _text("repeats", "median of each repeat in the unit of value, JSON list"),
        _us("measured_at_us", "when the run began, UTC"),
        _text("gpu_model", "device as it reports itself"),
        Column("rank", INT32, "rank whose own figure it is; null = the device's or all ranks'"),
        _real("power_limit_w", "power limit in force", "W"),
        _text("settings", "further settings as a table of measurements has them, JSON object"),
        *PROVENANCE,
    ),
)

PUBLIC_RESULTS = Table(
    "public_results",
    1,
    "Results of public training benchmarks as somebody published or summed them up; one row per "
    "system and benchmark.",
    ("round", "submitter", "system", "benchmark"),
    (
        _key("round", "round of the benchmark, as 5.1; unknown where the source names none"),
        _key("submitter", "who submitted it"),
        _key("system", "system"),
        _key("benchmark", "what was trained, as llama2_70b_lora"),
        _text("division", "closed or open"),
        _text("availability", "available on-premise, available cloud, preview, ..."),
        _text("gpu_model", "device, as the result names it"),
        Column("gpus", INT32, "devices that trained"),
        Column("nodes", INT32, "nodes"),
        _text("software", "framework and versions"),
        _real("train_s", "time to train to the target quality", "s"),
        Column("runs", INT32, "runs that it is taken from"),
        _real("shortest_s", "shortest run", "s"),
        _real("longest_s", "longest run", "s"),
        _text("source_url", "where it was published"),
        *PROVENANCE,
    ),
    latest_wins=True,
)

PUBLIC_RUNS = Table(
    "public_runs",
    1,
    "Single runs of public training benchmarks, as their logs tell them.",
    ("round", "submitter", "system", "benchmark", "run"),
    (
        _key("round", "round of the benchmark, as 5.1; unknown where the log's place names none"),
        _key("submitter", "who submitted it"),
        _key("system", "system"),
        _key("benchmark", "what was trained, as llama2_70b_lora"),
        Column("run", INT32, "number of the run, from 0", nullable=False),
        _text("division", "closed or open"),
        _text("availability", "onprem, cloud, preview, research"),
        _text("gpu_model", "device, as the description of the system names it"),
        Column("gpus", INT32, "devices that trained"),
        Column("nodes", INT32, "nodes"),
        _text("software", "framework and versions"),
        _text("status", "success or aborted; null = the log ends before the run does"),
        _real("train_s", "from run_start to run_stop", "s"),
        _real("init_s", "initialisation before it, which does not count", "s"),
        _real("scaling_factor", "by which the organiser lengthens the result; null = none stated"),
        _int("global_batch_size", "global batch size", "samples"),
        _real("samples", "samples seen at the last evaluation", "samples"),
        _real("quality", "last evaluated quality"),
        *PROVENANCE,
    ),
    latest_wins=True,
)

BUDGETS = Table(
    "budgets",
    2,
    "Money and goodput promised to a scope in a period; each change is a row, the newest holds.",
    ("scope", "period", "set_at_us"),
    (
        _key("scope", "all, or team:NAME, project:NAME, cluster:NAME, owner:NAME, job:ID"),
        _key("period", "2026-11, 2026-Q4, 2026"),
        _us("set_at_us", "when it was set", nullable=False),
        _money("budget_usd", "budget; null = none"),
        _real("goodput_slo_ratio", "useful share promised; null = none", "ratio"),
        _text("set_by", "who set it"),
        _text("note", "why"),
        *PROVENANCE,
    ),
)

REJECTS = Table(
    "rejects",
    1,
    "Rows that were read and not stored, each with its reason.",
    ("source", "source_row", "reason"),
    (
        Column("table", TEXT, "table that it was meant for", nullable=False),
        Column("reason", TEXT, "what was expected and what was found", nullable=False),
        _text("field", "column concerned"),
        _text("raw", "the row as read, at most 500 characters"),
        *PROVENANCE,
    ),
)

TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        JOBS,
        RANKS,
        STEPS,
        OPS,
        COLLECTIVES,
        LINK_PROBES,
        COMMUNICATORS,
        DEVICE_SAMPLES,
        PORT_SAMPLES,
        NODES,
        EVENTS,
        PRINTED_METRICS,
        REPORTED_SCORES,
        CHARGES,
        CHARGE_STATES,
        PRICES,
        HELD_PRICES,
        BENCH_RESULTS,
        PUBLIC_RESULTS,
        PUBLIC_RUNS,
        BUDGETS,
        REJECTS,
    )
}


def table(name: str) -> Table:
    """The table called ``name``; KeyError names the ones that exist."""
    try:
        return TABLES[name]
    except KeyError:
        raise KeyError(f"no table {name!r}; there are {', '.join(TABLES)}") from None
