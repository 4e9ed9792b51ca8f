-- Every change of every budget, newest first.
SELECT scope, period, set_at_us, budget_usd, goodput_slo_ratio, set_by, note
FROM budgets
ORDER BY scope, period, set_at_us DESC, budget_usd NULLS LAST,
    goodput_slo_ratio NULLS LAST
