#include "agent/os/bug.h"

#include <fsdp/link.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/os/deadlines.h"
#include "agent/os/descendants.h"
#include "agent/os/guard.h"
#include "agent/os/sink.h"

_Noreturn void bug_stop(const char *format, ...)
{
    char words[200], line[sizeof words + 40];
    va_list args;

    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    snprintf(line, sizeof line, "fsdprun: bug: %s; stopping\n", words);
    sink_say(STDERR_FILENO, line, LAST_WORD_MS);
    descendants_end(GUARD_CLEANUP_MS, NULL, 0);
    _exit(FSDP_EXIT_BUG);
}
