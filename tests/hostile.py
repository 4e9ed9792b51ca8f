"""Names that attack whatever shows them: pages, files, terminals, SQL and paths."""

from __future__ import annotations

#: Where an attack would lead, and what it would set.
LURE = "evil.example"
NAMES = {
    "markup": f'<img src=x onerror="window.pwned=1"><a href="https://{LURE}/">win</a>'
    "<script>window.pwned=1</script>",
    "formula": f'=HYPERLINK("https://{LURE}/","win")',
    "markdown": f"[win](javascript:window.pwned=1) ![y](https://{LURE}/y.png) <https://{LURE}> "
    ":red[z] $\\frac{1}{2}$ $$x^2$$ `code` javascript:alert(1)",
    "sql": "'; DROP TABLE jobs; SELECT * FROM read_text('/etc/passwd'); --\" %s {0} :job_id $1",
    "path": "../../../../../../tmp/pwned/%2e%2e%2f..\\..\\x",
    "control": "nul\x00 bell\x07 esc\x1b[31m rtl\u202egnp.exe\u2066 tab\tnew\nline",
    "plus": "+1+cmd|' /C calc'!A0;=1+1;\uff1d1+1",
    "at": "@SUM(1+1)*cmd|' /C calc'!A0",
}
