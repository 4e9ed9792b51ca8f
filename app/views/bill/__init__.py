"""The whole bill of a job, and what is connected to it: claims, rules, invoices."""
