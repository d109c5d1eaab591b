"""Pipeline schedules: orders of passes, their graph, and the exact time that it takes."""
