/*
 * What workers and the kernel write for the agent, under libFuzzer: error files, watchdog timers, and the texts by which
 * an OOM kill is found. Refused, or taken into bounded fields; a timer that was taken is in the set once.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/cluster/detail_proto.h"
#include "agent/os/oom.h"
#include "agent/record/error_file.h"
#include "agent/world/timers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_error_file(const char *text, size_t size)
{
    static struct errors_detail detail, back;
    static struct proto_detail wire;
    static char account[32768];

    memset(&detail, 0, sizeof detail);
    if (!error_file_parse(&detail, text, size))
        return;
    if (error_file_age_ns(&detail, INT64_C(1700000000000000)) < 0)
        abort();
    detail_to_proto(&wire, &detail);
    detail_from_proto(&back, &wire);
    if (strcmp(back.message, detail.message) != 0 || strcmp(back.traceback, detail.traceback) != 0)
        abort();
    errors_account(&detail, account, sizeof account);
    for (const char *at = account; *at != '\0'; at++)
        if (((unsigned char)*at < 0x20 && *at != '\n' && *at != '\t') || *at == 0x7f)
            abort(); /* nothing a terminal would act on */
}

static void check_timer(const char *line, size_t size)
{
    struct timer_request request, expired;
    struct timers timers = { 0 };
    struct fsdp_err err = { 0 };

    if (timers_parse(&request, line, size, &err) != FSDP_OK) {
        if (err.message[0] == '\0')
            abort();
        return;
    }
    if (request.pid <= 0 || request.signal < 0 || request.signal > 64)
        abort();
    timers_take(&timers, &request, NULL);
    timers_take(&timers, &request, NULL);
    if (timers.n != (request.expires_us >= 0) ||
        timers_pop(&timers, INT64_MAX, &expired) != (request.expires_us >= 0))
        abort();
    timers_fini(&timers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), path[32];
    uint64_t n;
    bool v1;

    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    check_error_file(text, size);
    check_timer(text, size);
    oom_parse_counter(text, &n);
    oom_parse_record(text);
    if (oom_parse_group(text, &v1, path, sizeof path) && memchr(path, '\0', sizeof path) == NULL)
        abort();
    free(text);
    return 0;
}
