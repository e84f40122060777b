/*
 * What `fsdprun plan` prints: a forecast for people, or as the JSON that the contract describes.
 */
#ifndef TRAINER_PLAN_REPORT_H
#define TRAINER_PLAN_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "shard_runtime/trainer/advice.h"
#include "shard_runtime/trainer/forecast.h"

/** `limit` in bytes of a rank; 0: none was given, and whether it fits is not said. `advice` NULL: none is needed. */
void plan_report_text(FILE *out, const struct job *job, const struct forecast *forecast, size_t limit,
                      const struct advice_list *advice);
void plan_report_json(FILE *out, const struct forecast *forecast, size_t limit,
                      const struct advice_list *advice);

#endif
