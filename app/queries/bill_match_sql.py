"""What lines of a bill are compared by: the statements of ``bill_match``, in its order of use."""

from __future__ import annotations

KEY = "provider, invoice, line"
FACTS = f"{KEY}, billing_account, month, start_us, content, subject, amortised, acct, named"
#: A line as it is compared. Without a resource its tags tell what it is for, since parts of one
#: export differ by them. ``amortised``: it says only what it is worth, and another export of the
#: same bill what was billed. ``acct``: the account as any kind of file ends its name.
LINE = """
SELECT *, NOT (ends_with(invoice, ' ' || month) OR invoice = stem) AS named FROM (
    SELECT
        provider, invoice, line, {account} AS billing_account, month,
        coalesce({charge_start}, {billing_start}) AS start_us,
        md5_number(concat_ws(chr(31), {content})) AS content,
        md5_number(concat_ws(chr(31), {subject},
            CASE WHEN {resource} IS NULL THEN {tags} ELSE chr(1) END)) AS subject,
        {billed} IS NULL AS amortised,
        lower(regexp_extract(rtrim({account}, '/'), '[^/]*$')) AS acct,
        {more}
    FROM (
        SELECT *, coalesce(
            TRY(strftime(make_timestamp(coalesce({billing_start}, {charge_start})), '%Y-%m')), ''
        ) AS month
        FROM {relation}
    ) AS r SEMI JOIN {months} AS m ON m.p = lower(r.provider) AND m.month = r.month
)
"""
STEM = "split_part(parse_filename(substr({file}, 1 + strpos({file}, ':'))), '.', 1)"
#: Lines are compared inside one provider and month.
SCOPE = "provider || chr(31) || month || chr(31) || half"
NONE = (
    "SELECT provider, invoice, line, month, '' AS file, '' AS held_for FROM new_lines WHERE false"
)
NO_PARTS = "SELECT provider, invoice, line, true AS is_new, '' AS part FROM new_lines WHERE false"
#: Whether a stored line ``s`` may be of the bill that a scope ``b`` of the delivery is of.
SAME_BILL = """
(s.billing_account IS NULL OR b.any_account
    OR (s.scope, s.billing_account) IN (SELECT scope, billing_account FROM own_accounts))
AND (b.is_open OR NOT s.named
    OR (s.scope, s.invoice) IN (SELECT scope, invoice FROM own_invoices))
"""
IN_TIME = (
    "(s.start_us IS NULL OR b.first_us IS NULL OR s.start_us BETWEEN b.first_us AND b.last_us)"
)
STEPS = (
    f"CREATE TEMP TABLE again AS SELECT * FROM same SEMI JOIN new_lines USING ({KEY})",
    f"CREATE TEMP TABLE rest AS SELECT * FROM same ANTI JOIN new_lines USING ({KEY}) WHERE counts",
    """CREATE TEMP TABLE bills AS SELECT scope, bool_or(billing_account IS NULL) AS any_account,
        bool_or(NOT named) AS is_open, min(start_us) AS first_us, max(start_us) AS last_us
        FROM own GROUP BY scope""",
    "CREATE TEMP TABLE own_accounts AS SELECT DISTINCT scope, billing_account FROM own",
    "CREATE TEMP TABLE own_invoices AS SELECT DISTINCT scope, invoice FROM own",
    f"""CREATE TEMP TABLE near AS
    SELECT s.* FROM rest s JOIN bills b USING (scope) WHERE {SAME_BILL}""",
    # The same line by another name: each line of the delivery takes one.
    f"""CREATE TEMP TABLE alike AS
    WITH free AS (
        SELECT scope, content, count(*) AS n
        FROM own ANTI JOIN (SELECT {KEY} FROM again) USING ({KEY})
        GROUP BY scope, content
    ), numbered AS (
        SELECT *, row_number() OVER (PARTITION BY scope, content ORDER BY place) AS nth FROM near
    )
    SELECT x.* EXCLUDE (nth) FROM numbered x JOIN free USING (scope, content) WHERE nth <= n""",
    # What an earlier delivery charged for in the time of this one, and how much of it is named.
    f"""CREATE TEMP TABLE nearby AS
    SELECT s.*, false AS is_again FROM near s JOIN bills b USING (scope) WHERE {IN_TIME}
    UNION ALL
    SELECT s.*, true AS is_again FROM again s JOIN bills b USING (scope)
    WHERE s.counts AND {SAME_BILL} AND {IN_TIME}""",
    # Parts of this one may have come before it: many parts together replace one that was whole.
    """CREATE TEMP TABLE verdicts AS
    WITH subjects AS (SELECT scope, subject, count(*) AS n FROM own GROUP BY scope, subject),
    theirs AS (
        SELECT scope, delivery, delivered_us, subject, count(*) AS n,
            count(*) FILTER (WHERE NOT is_again) AS fresh
        FROM nearby GROUP BY ALL
    ),
    later AS (
        SELECT t.scope, t.delivery, t.delivered_us, t.subject, sum(d.fresh) AS n
        FROM theirs t JOIN theirs d ON d.scope = t.scope AND d.subject = t.subject
            AND d.delivered_us > t.delivered_us
        GROUP BY ALL
    )
    SELECT t.scope, t.delivery, t.delivered_us,
        2 * sum(least(t.n, coalesce(o.n, 0) + coalesce(l.n, 0))) >= sum(t.n) AS replaces
    FROM theirs t
    LEFT JOIN subjects o ON o.scope = t.scope AND o.subject = t.subject
    LEFT JOIN later l ON l.scope = t.scope AND l.subject = t.subject
        AND l.delivery = t.delivery AND l.delivered_us = t.delivered_us
    GROUP BY ALL""",
    f"""CREATE TEMP TABLE remaining AS
    SELECT n.*, v.replaces FROM nearby n JOIN verdicts v USING (scope, delivery, delivered_us)
    ANTI JOIN (SELECT {KEY} FROM alike) USING ({KEY})
    WHERE NOT is_again""",
    f"""CREATE TEMP TABLE gone AS
    SELECT {KEY}, file FROM alike UNION ALL
    SELECT {KEY}, file FROM remaining WHERE replaces""",
    """CREATE TEMP TABLE added AS
    SELECT delivery, count(*) AS n FROM remaining WHERE NOT replaces GROUP BY delivery""",
)
#: Whether a new line ``n`` is told of by another kind of file ``o``.
TOLD_OF = """
o.p = lower(n.provider) AND o.month = n.month
AND (o.acct IS NULL OR n.acct IS NULL OR o.acct = n.acct)
AND (n.start_us IS NULL OR o.first_us IS NULL OR n.start_us BETWEEN o.first_us AND o.last_us)
"""
#: A line that both kinds say in the same words is stored once, and counts.
HELD = f"""
SELECT n.provider, n.invoice, n.line, n.month, '' AS file, min(o.file) AS held_for
FROM new_lines n JOIN others o ON {TOLD_OF}
WHERE (n.provider, n.invoice, n.line) NOT IN (
    SELECT ({KEY}) FROM stored WHERE counts AND NOT starts_with(delivery, '{{kind}}:')
)
GROUP BY n.provider, n.invoice, n.line, n.month
"""
YIELDED = """
WITH mine AS (
    SELECT lower(provider) AS p, month, acct, min(start_us) AS first_us, max(start_us) AS last_us
    FROM new_lines GROUP BY ALL
)
SELECT DISTINCT s.provider, s.invoice, s.line, s.month, s.file, '' AS held_for
FROM stored s JOIN mine m ON m.p = lower(s.provider) AND m.month = s.month
    AND (m.acct IS NULL OR s.acct IS NULL OR m.acct = s.acct)
    AND (s.start_us IS NULL OR m.first_us IS NULL OR s.start_us BETWEEN m.first_us AND m.last_us)
WHERE s.counts AND contains(s.file, ':') AND NOT starts_with(s.file, '{kind}:')
    AND (s.provider, s.invoice, s.line) NOT IN (SELECT (provider, invoice, line) FROM new_lines)
"""
SHARED = f"""
SELECT {KEY}, month, file, '' AS held_for
FROM stored SEMI JOIN new_lines USING ({KEY}) WHERE NOT starts_with(file, '{{kind}}:')
"""
#: Other kinds that tell of the month while both count: other accounts, other times, or so wished.
BESIDE = f"""
SELECT o.file, o.month, count(*) FROM others o
WHERE EXISTS (
    SELECT 1 FROM new_lines n ANTI JOIN held USING ({KEY})
    WHERE o.p = lower(n.provider) AND o.month = n.month
)
GROUP BY o.file, o.month ORDER BY ALL
"""
#: Billed and amortised export of the same time: what each says alone counts. Stored lines are
#: named where that changes.
JOINED = f"""
WITH lines AS (
    SELECT {KEY}, provider AS p, month, acct, start_us, amortised, NULL AS part, true AS is_new
    FROM own ANTI JOIN (SELECT {KEY} FROM held) USING ({KEY})
    UNION ALL
    SELECT {KEY}, provider, month, acct, start_us, amortised, part, false
    FROM same ANTI JOIN (SELECT {KEY} FROM gone) USING ({KEY})
        ANTI JOIN new_lines USING ({KEY})
    WHERE counts
), spans AS (
    SELECT p, month, acct, amortised, min(start_us) AS first_us, max(start_us) AS last_us
    FROM lines GROUP BY ALL
)
SELECT l.provider, l.invoice, l.line, l.is_new,
    CASE WHEN l.amortised THEN 'effective' ELSE 'billed' END AS part
FROM lines l SEMI JOIN spans s ON s.p = l.p AND s.month = l.month AND s.amortised <> l.amortised
    AND (s.acct IS NULL OR l.acct IS NULL OR s.acct = l.acct)
    AND (l.start_us IS NULL OR s.first_us IS NULL OR l.start_us BETWEEN s.first_us AND s.last_us)
WHERE l.part IS NULL OR l.part = ''
"""
STATES = f"""
WITH told AS (
    SELECT {KEY}, true AS counts, '' AS file, '' AS held_for, source AS told_by
    FROM again, _source
    UNION ALL
    SELECT {KEY}, true, '', '', source FROM shared, _source
    UNION ALL
    SELECT {KEY}, false, file, '', '' FROM gone
    UNION ALL
    SELECT {KEY}, false, file, source, '' FROM yielded, _source
    UNION ALL
    SELECT {KEY}, false, source, held_for, '' FROM held, _source
    UNION ALL
    SELECT {KEY}, true, '', '', CASE WHEN is_new THEN source ELSE s.delivery END
    FROM joined LEFT JOIN stored s USING ({KEY}), _source
), one AS (
    SELECT {KEY}, bool_and(counts) AS counts, max(file) AS file, max(held_for) AS held_for,
        min(told_by) FILTER (WHERE told_by <> '') AS told_by
    FROM told GROUP BY {KEY}
)
SELECT o.*, coalesce(j.part, '') AS part
FROM one o LEFT JOIN joined j USING ({KEY})
ORDER BY {KEY}
"""
