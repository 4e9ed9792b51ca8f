"""Streamlit pages: URL state in, one view model, one rendering."""
