#include "shard_runtime/shardfile/shard_marks.h"

#include <stdio.h>

#include "shard_runtime/shardfile/contents.h"

void shards_mark(struct shards_marks *marks, const struct shards_save *save)
{
    static const char *const keys[SHARDS_MARKS] = { CONTENTS_STEP_KEY, CONTENTS_GENERATION_KEY,
                                                    CONTENTS_WORLD_KEY, CONTENTS_RANK_KEY };
    const long long values[SHARDS_MARKS] = { save->step, save->generation, save->W, save->rank };

    for (int i = 0; i < SHARDS_MARKS; i++) {
        snprintf(marks->words[i], sizeof marks->words[i], "%lld", values[i]);
        marks->list[i] = (struct safetensors_metadata){ keys[i], marks->words[i] };
    }
}
