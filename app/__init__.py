"""The product's core: schema, lake, queries, computation, views, charts, command line."""
