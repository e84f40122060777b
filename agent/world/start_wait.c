#include "agent/world/start_wait.h"

#include <stdio.h>

void start_wait_begin(struct start_wait *wait, int64_t now_ns)
{
    *wait = (struct start_wait){ .seen_ns = now_ns };
}

enum start_news start_wait_look(struct start_wait *wait, int64_t now_ns)
{
    const int before_ms = wait->waited_ms;
    const int64_t passed_ms = (now_ns - wait->seen_ns) / 1000000;

    if (passed_ms > START_WAIT_LOOK_MS) {
        wait->seen_ns = now_ns;
        wait->waited_ms += START_WAIT_LOOK_MS;
    } else {
        wait->seen_ns += passed_ms * 1000000;
        wait->waited_ms += (int)passed_ms;
    }
    if (before_ms < START_WAIT_LIMIT_MS && wait->waited_ms >= START_WAIT_LIMIT_MS)
        return START_FAILED;
    return before_ms < START_WAIT_SAY_MS && wait->waited_ms >= START_WAIT_SAY_MS ? START_IS_SLOW
                                                                                 : START_NO_NEWS;
}

bool start_wait_look_at_disk(struct start_wait *wait, int64_t now_ns, struct console *console,
                             char why[START_WAIT_WORDS_BYTES])
{
    const enum start_news news = start_wait_look(wait, now_ns);

    if (news == START_IS_SLOW)
        console_say(console, "fsdprun: no worker is started after %d s: the disk does not answer",
                    START_WAIT_SAY_MS / 1000);
    if (news == START_FAILED)
        snprintf(why, START_WAIT_WORDS_BYTES, "the disk has not answered for %d s",
                 START_WAIT_LIMIT_MS / 1000);
    return news == START_FAILED;
}
