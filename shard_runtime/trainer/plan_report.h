/*
 * The output of `fsdprun plan`: a forecast as tables for people, or as JSON for programs. Both come from one
 * table of lines.
 */
#ifndef TRAINER_PLAN_REPORT_H
#define TRAINER_PLAN_REPORT_H

#include <stdio.h>

#include "shard_runtime/core/json.h"
#include "shard_runtime/trainer/advice.h"
#include "shard_runtime/trainer/forecast.h"

/**
 * Prints the forecast of `job` as tables for people.
 *
 *   limit   bytes that a rank may use; 0: no limit was given, and the report does not say whether the job
 *           fits
 *   advice  changes that would save memory; NULL: the job fits, or there is no limit
 */
void plan_report_text(FILE *out, const struct job *job, const struct forecast *forecast, size_t limit,
                      const struct advice_list *advice);

/**
 * Appends the same forecast to `out` as one JSON object, in the form that `fsdprun plan --json` promises.
 * `limit` and `advice` are as in plan_report_text().
 */
void plan_report_json(struct json_text *out, const struct forecast *forecast, size_t limit,
                      const struct advice_list *advice);

#endif
