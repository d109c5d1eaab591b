"""Plans: how layers, recomputation and micro batches are spread over the stages of a pipeline, and how long a step then takes.

Times are int64 ns, sizes int bytes. Stages, chunks, micro batches and layers count from 0. `schedule.py` simulates given stage
times, `balance.py` chooses layers and recomputation with a proven bound, `problem.py` has its input.
"""
