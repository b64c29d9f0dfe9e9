#!/usr/bin/env bash

#SBATCH -J dask-worker
#SBATCH -p standard
#SBATCH -A project_1
#SBATCH -n 1
#SBATCH --cpus-per-task=4
#SBATCH --mem=7630M
#SBATCH -t 01:00:00
#SBATCH --no-requeue
#SBATCH --qos=normal
#SBATCH -o logs/dolma-dask-%j.log
module load python
SCRATCH="/local/scratch"
if ! [ -d "$SCRATCH" -a -w "$SCRATCH" ]; then echo "no folder $SCRATCH on $(hostname); taking ${TMPDIR:-/tmp}" >&2; SCRATCH="${TMPDIR:-/tmp}"; fi
export TMPDIR="$SCRATCH"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
export ARROW_IO_THREADS=${ARROW_IO_THREADS:-2}
export RAYON_NUM_THREADS=${RAYON_NUM_THREADS:-1}
export TOKENIZERS_PARALLELISM=${TOKENIZERS_PARALLELISM:-false}
export MALLOC_TRIM_THRESHOLD_=${MALLOC_TRIM_THRESHOLD_:-67108864}
export MALLOC_MMAP_THRESHOLD_=${MALLOC_MMAP_THRESHOLD_:-33554432}
export DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=False
export DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False
export DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=0.85
export DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE=0.95
export DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT=60s
/shared/venv/bin/python -m distributed.cli.dask_worker tcp://ADDRESS-OF-THE-SCHEDULER --name JOB --nthreads 1 --memory-limit 3764MiB --nworkers 2 --nanny --death-timeout 300 --local-directory "$SCRATCH" --no-dashboard --lifetime 3300s --lifetime-stagger 150s --interface hsn0
