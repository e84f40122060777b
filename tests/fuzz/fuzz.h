/* What the fuzz targets share. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fsdp/status.h>

/* libFuzzer's entry: each target defines it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the program if something is wrong, which libFuzzer reports with the input. */
static inline void never(bool wrong)
{
    if (wrong)
        abort();
}

/* What is refused is refused with words. Returns whether it was taken. */
static inline bool taken(enum fsdp_status status, const struct fsdp_err *err)
{
    never(status != FSDP_OK && err->message[0] == '\0');
    return status == FSDP_OK;
}

#endif
