"""The REST API: what is asked, by whom, and what is answered."""
