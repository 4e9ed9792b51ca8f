-- When the steps in [first_step, last_step] ran; of a step that several attempts ran, the newest.
WITH newest AS (
    SELECT step, max(attempt) AS attempt
    FROM steps
    WHERE step BETWEEN :first_step AND :last_step
    GROUP BY step
)
SELECT min(s.start_us) AS start_us, max(s.start_us + s.duration_us) AS end_us
FROM steps s
JOIN newest n ON s.step = n.step AND s.attempt = n.attempt
