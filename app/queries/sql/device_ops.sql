-- Operations of the steps from :first_step to :last_step, as far as the profile of devices looks.
SELECT
    o.step, o.rank, o.op_type, o.name, o.stream, o.start_ns, o.duration_ns, o.launch_ns
FROM ops o
WHERE o.step BETWEEN :first_step AND :last_step
