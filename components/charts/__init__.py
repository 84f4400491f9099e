"""Archives of charts: fetched from repositories, uploaded, kept, and read without running them."""
