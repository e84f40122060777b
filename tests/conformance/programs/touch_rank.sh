#!/bin/sh
# What a worker must be told is there; then it says what it creates, as upstream's helper does, and leaves a file with its
# rank for a name. touch_rank.sh DIRECTORY [fail]
for name in RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE \
  MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS \
  TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_ERROR_FILE TORCH_NCCL_ASYNC_ERROR_HANDLING OMP_NUM_THREADS PARENTS_WORD; do
  eval "is_set=\${$name+yes}"
  [ "$is_set" = yes ] || { echo "$name is not set" >&2; exit 3; }
done
[ "${2:-}" != fail ] || exit 4
echo "creating $1/$RANK"
: > "$1/$RANK"
