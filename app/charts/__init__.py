"""View models to figures, tables and files. No widget, no store, no formula of a metric."""
