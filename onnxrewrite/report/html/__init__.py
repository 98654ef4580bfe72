"""The report as one page of HTML, and what notebooks show: the same plain data as the tables and the JSON report."""
