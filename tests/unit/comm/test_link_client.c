/*
 * The worker's end of a link that is open: keys and values, events and saves, notices, and all the ways in
 * which it ends.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shard_runtime/comm/link_impl.h"
#include "tests/unit/comm/agent_end.h"

static struct fsdp_err err;
static struct link *link_;
static struct fsdp_link_header header; /* of what was heard last */
static struct fsdp_link_notice notice;
static struct fsdp_link_published published;

static void begin(void)
{
    link_ = agent_end_opened();
}

static void end(void)
{
    link_close(link_);
}

TestSuite(link_client, .init = begin, .fini = end);

/* Waits for the value of key "k". */
static enum fsdp_status get(char *value, size_t size)
{
    return link_get(link_, "k", value, &size, NULL, &err);
}

static void say_notice(uint32_t kind, int64_t step)
{
    const struct fsdp_link_notice said = { .kind = kind, .stop_after_step = step };

    agent_end_say(FSDP_LINK_NOTICE, 0, &said, sizeof said, -1);
}

static void say_published(int64_t step, uint32_t status)
{
    const struct fsdp_link_published said = { .step = step, .status = status, .words = "w" };

    agent_end_say(FSDP_LINK_PUBLISHED, 0, &said, sizeof said, -1);
}

/* Put and get */

Test(link_client, put_sends_key_value_and_descriptor)
{
    struct {
        struct fsdp_link_put put;
        char value[64];
    } got;
    char text[8] = "";
    int fd = agent_end_file("abc", 3), came;

    cr_assert_eq(link_put(link_, "k/1", "hello", 5, fd, &err), FSDP_OK);

    cr_assert_eq(agent_end_heard(&header, &got, sizeof got, &came), sizeof got.put + 5);
    cr_assert_eq(header.type, FSDP_LINK_PUT);
    cr_assert_str_eq(got.put.key, "k/1");
    cr_assert_eq(memcmp(got.value, "hello", 5), 0);
    cr_assert_eq(pread(came, text, 3, 0), 3);
    cr_assert_str_eq(text, "abc");
    close(came);
    close(fd);
}

Test(link_client, get_returns_the_value_and_its_descriptor)
{
    struct fsdp_link_get get;
    char value[64], text[4] = "";
    size_t size = sizeof value;
    int fd;

    agent_end_say(FSDP_LINK_VALUE, 1, "world", 5, agent_end_file("xyz", 3));
    cr_assert_eq(link_get(link_, "k", value, &size, &fd, &err), FSDP_OK, "%s", err.message);

    cr_assert_eq(size, 5);
    cr_assert_eq(memcmp(value, "world", 5), 0);
    cr_assert_eq(pread(fd, text, 3, 0), 3);
    cr_assert_str_eq(text, "xyz");
    cr_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    agent_end_heard(&header, &get, sizeof get, NULL);
    cr_assert_eq(header.type, FSDP_LINK_GET);
    cr_assert_eq(header.tag, 1);
    cr_assert_str_eq(get.key, "k");
    close(fd);
}

Test(link_client, a_value_of_the_largest_size_travels_both_ways)
{
    char *value = malloc(FSDP_LINK_VALUE_BYTES + 1), *back = malloc(FSDP_LINK_VALUE_BYTES + 200);
    size_t size = FSDP_LINK_VALUE_BYTES;

    memset(value, 'v', FSDP_LINK_VALUE_BYTES + 1);
    cr_assert_eq(link_put(link_, "k", value, FSDP_LINK_VALUE_BYTES, -1, &err), FSDP_OK);
    cr_assert_eq(agent_end_heard(&header, back, FSDP_LINK_VALUE_BYTES + 200, NULL),
                 sizeof(struct fsdp_link_put) + FSDP_LINK_VALUE_BYTES);
    agent_end_say(FSDP_LINK_VALUE, 1, value, FSDP_LINK_VALUE_BYTES, -1);
    cr_assert_eq(link_get(link_, "k", back, &size, NULL, &err), FSDP_OK);
    cr_assert_eq(size, FSDP_LINK_VALUE_BYTES);
    cr_assert_eq(memcmp(back, value, size), 0);

    agent_end_say(FSDP_LINK_VALUE, 2, value, FSDP_LINK_VALUE_BYTES + 1, -1);
    cr_assert_eq(link_get(link_, "k", back, &size, NULL, &err), FSDP_ERR_FORMAT);
    cr_assert_not_null(strstr(err.message, "too long"));
    free(value);
    free(back);
}

Test(link_client, keys_and_values_out_of_bounds_are_refused_and_not_sent)
{
    char key[FSDP_LINK_KEY_BYTES + 1], value[4];
    size_t size = sizeof value;
    int n_before = agent_end_n_open_descriptors();

    memset(key, 'k', sizeof key);
    key[FSDP_LINK_KEY_BYTES] = '\0';
    cr_assert_eq(link_put(link_, key, "v", 1, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_put(link_, "", "v", 1, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_put(link_, NULL, "v", 1, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_put(link_, "k", NULL, 1, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_put(link_, "k", "v", FSDP_LINK_VALUE_BYTES + 1, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_put(link_, "k", "v", 1, 9999, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_get(link_, key, value, &size, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(recv(agent_end.fd, value, 1, MSG_DONTWAIT), -1);

    key[FSDP_LINK_KEY_BYTES - 1] = '\0';
    cr_assert_eq(link_put(link_, key, "v", 1, -1, &err), FSDP_OK, "the longest key");
    agent_end_say(FSDP_LINK_VALUE, 1, "12345", 5, agent_end_page());
    cr_assert_eq(get(value, sizeof value), FSDP_ERR_FORMAT);
    cr_assert_eq(agent_end_n_open_descriptors(), n_before);
}

Test(link_client, packets_of_other_kinds_that_come_first_are_kept)
{
    char value[8];

    say_published(20, FSDP_OK);
    say_notice(FSDP_NOTICE_SAVE_AND_STOP, 30);
    /* the answer to a question nobody asks any more */
    agent_end_say(FSDP_LINK_VALUE, 99, "old", 3, agent_end_page());
    say_published(10, FSDP_ERR_IO);
    say_notice(FSDP_NOTICE_SAVE_AND_STOP, 31);
    agent_end_say(FSDP_LINK_VALUE, 1, "v", 1, -1);
    cr_assert_eq(get(value, sizeof value), FSDP_OK);

    cr_assert_eq(link_published(link_, 10, &published, &err), FSDP_OK);
    cr_assert_eq(published.status, FSDP_ERR_IO);
    cr_assert_eq(link_published(link_, 20, &published, &err), FSDP_OK);
    cr_assert_eq(published.status, FSDP_OK);
    cr_assert(link_poll_notice(link_, &notice));
    cr_assert_eq(notice.stop_after_step, 30);
    cr_assert(link_poll_notice(link_, &notice));
    cr_assert_eq(notice.stop_after_step, 31);
    cr_assert_not(link_poll_notice(link_, &notice));
}

/* The end of things */

Test(link_client, a_hang_up_ends_every_wait)
{
    struct fsdp_link_saved saved = { .step = 1 };
    char value[8];

    for (int point = 0; point < 6; point++) {
        enum fsdp_status status;

        close(agent_end.fd);
        status = point == 0   ? link_put(link_, "k", "v", 1, -1, &err)
                 : point == 1 ? get(value, sizeof value)
                 : point == 2 ? link_event(link_, "{}", &err)
                 : point == 3 ? link_saved(link_, &saved, -1, &err)
                 : point == 4 ? link_published(link_, 1, &published, &err)
                              : link_check(link_, &err);
        cr_assert_eq(status, FSDP_ERR_PEER, "point %d: %s", point, err.message);
        cr_assert_eq(link_check(link_, &err), FSDP_ERR_PEER, "it sticks");
        cr_assert_not(link_poll_notice(link_, &notice));
        link_close(link_);
        link_ = agent_end_opened();
    }
}

Test(link_client, what_came_before_a_hang_up_is_not_lost)
{
    char value[8];

    agent_end_say(FSDP_LINK_VALUE, 1, "v", 1, -1);
    say_published(4, FSDP_OK);
    say_notice(FSDP_NOTICE_SAVE_AND_STOP, -1);
    shutdown(agent_end.fd, SHUT_WR);
    cr_assert_eq(get(value, sizeof value), FSDP_OK);
    cr_assert_eq(link_published(link_, 4, &published, &err), FSDP_OK);
    cr_assert(link_poll_notice(link_, &notice));
    cr_assert_eq(link_check(link_, &err), FSDP_ERR_PEER);
    close(agent_end.fd);
}

Test(link_client, an_abort_ends_every_wait_and_is_still_a_notice)
{
    char value[8];

    say_notice(FSDP_NOTICE_ABORT, 0);
    cr_assert_eq(get(value, sizeof value), FSDP_ERR_PEER);
    cr_assert_not_null(strstr(err.message, "waiting for k"), "%s", err.message);
    cr_assert_eq(link_check(link_, &err), FSDP_ERR_PEER);
    cr_assert(link_poll_notice(link_, &notice));
    cr_assert_eq(notice.kind, FSDP_NOTICE_ABORT);
    link_close(link_);

    link_ = agent_end_opened(); /* the page's word does without a packet */
    atomic_store(&link_progress(link_)->abort_word, 1);
    cr_assert_eq(get(value, sizeof value), FSDP_ERR_PEER);
}

Test(link_client, packets_that_workers_do_not_get_break_the_link)
{
    static const int types[] = {
        0, FSDP_LINK_HELLO, FSDP_LINK_PUT, FSDP_LINK_GET, FSDP_LINK_EVENT, FSDP_LINK_SAVED, 77
    };

    const int n_types = sizeof types / sizeof *types, n_short = FSDP_LINK_NOTICE - FSDP_LINK_PUBLISHED + 1;

    for (int i = 0; i < n_types + n_short; i++) {
        const bool known = i >= n_types; /* and too short */
        const int type = known ? FSDP_LINK_PUBLISHED + i - n_types : types[i];

        agent_end_say(type, 0, "123", known ? 3 : 0, -1);
        cr_assert_eq(link_check(link_, &err), FSDP_ERR_FORMAT, "type %d", type);
        close(agent_end.fd);
        link_close(link_);
        link_ = agent_end_opened();
    }
}

Test(link_client, events_and_saves_are_sent_as_they_are)
{
    struct fsdp_link_saved saved = { .step = 9, .file = "f" }, got;
    char text[FSDP_LINK_EVENT_BYTES + 2];
    int fd = agent_end_file("m", 1), came;

    cr_assert_eq(link_event(link_, "{\"event\": \"resume\"}", &err), FSDP_OK);
    cr_assert_eq(agent_end_heard(&header, text, sizeof text, NULL), 19);
    cr_assert_eq(header.type, FSDP_LINK_EVENT);
    memset(text, ' ', sizeof text);
    text[0] = '{', text[sizeof text - 2] = '}', text[sizeof text - 1] = '\0';
    cr_assert_eq(link_event(link_, text, &err), FSDP_ERR_ARG, "too long");
    cr_assert_eq(link_event(link_, "[1]", &err), FSDP_ERR_ARG, "no object");
    cr_assert_eq(link_event(link_, NULL, &err), FSDP_ERR_ARG);

    cr_assert_eq(link_saved(link_, &saved, fd, &err), FSDP_OK);
    cr_assert_eq(agent_end_heard(&header, &got, sizeof got, &came), sizeof got);
    cr_assert_eq(header.type, FSDP_LINK_SAVED);
    cr_assert_eq(memcmp(&got, &saved, sizeof got), 0);
    cr_assert(came >= 0);
    close(came);
    close(fd);
}

/* A world of one */

Test(link_client, without_an_agent_a_process_is_a_world_of_one)
{
    struct fsdp_link_saved saved = { .step = 1 };
    char value[16], text[2];
    size_t size = sizeof value;
    int fd = agent_end_file("q", 1), back = -1, n_before;

    link_close(link_);
    unsetenv(FSDP_LINK_FD_ENV);
    cr_assert_eq(link_open(&link_, &err), FSDP_OK);
    cr_assert(link_alone(link_));
    cr_assert_eq(link_->fd, -1);
    cr_assert_eq(link_hello(link_)->world_size, 1);
    cr_assert_eq(link_hello(link_)->resume_step, -1);
    cr_assert_null(link_job(link_, NULL));
    cr_assert_eq(link_progress(link_)->magic, FSDP_PROGRESS_MAGIC);

    n_before = agent_end_n_open_descriptors();
    cr_assert_eq(link_get(link_, "k", value, &size, NULL, &err), FSDP_ERR_NOT_FOUND);
    cr_assert_eq(link_put(link_, "k", "v", 1, fd, &err), FSDP_OK);
    cr_assert_eq(link_put(link_, "k", "v", 1, fd, &err), FSDP_ERR_ARG, "a key is put once");
    cr_assert_eq(link_get(link_, "k", value, &size, &back, &err), FSDP_OK);
    cr_assert_eq(size, 1);
    cr_assert_eq(pread(back, text, 1, 0), 1);
    close(back);
    size = 0;
    cr_assert_eq(link_get(link_, "k", value, &size, NULL, &err), FSDP_ERR_FORMAT);
    cr_assert_eq(agent_end_n_open_descriptors(), n_before + 1, "the one that is kept");

    cr_assert_eq(link_event(link_, "{}", &err), FSDP_OK);
    cr_assert_eq(link_check(link_, &err), FSDP_OK);
    cr_assert_not(link_poll_notice(link_, &notice));
    cr_assert_eq(link_saved(link_, &saved, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_published(link_, 1, &published, &err), FSDP_ERR_ARG);
    link_close(link_);
    link_ = NULL;
    cr_assert_eq(agent_end_n_open_descriptors(), n_before);
    close(fd);
}
