/*
 * The worker's end of a link that is open: keys and values, events and saves, notices, and all the ways in which it ends.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/comm/agent_end.h"

static struct fsdp_err err;

static void say_notice(uint32_t kind, int64_t step)
{
    const struct fsdp_link_notice notice = { .kind = kind, .stop_after_step = step };

    agent_end_say(FSDP_LINK_NOTICE, 0, &notice, sizeof notice, -1);
}

static void say_published(int64_t step, uint32_t status)
{
    const struct fsdp_link_published published = { .step = step, .status = status, .words = "w" };

    agent_end_say(FSDP_LINK_PUBLISHED, 0, &published, sizeof published, -1);
}

/* --- put and get ----------------------------------------------------------------------------------------- */

Test(link_client, put_sends_key_value_and_descriptor)
{
    struct link *link = agent_end_opened();
    struct {
        struct fsdp_link_put put;
        char value[64];
    } got;
    struct fsdp_link_header header;
    char text[8] = "";
    int fd = agent_end_file("abc", 3), came;

    cr_assert_eq(link_put(link, "k/1", "hello", 5, fd, &err), FSDP_OK);

    cr_assert_eq(agent_end_heard(&header, &got, sizeof got, &came), sizeof got.put + 5);
    cr_assert_eq(header.type, FSDP_LINK_PUT);
    cr_assert_str_eq(got.put.key, "k/1");
    cr_assert_eq(memcmp(got.value, "hello", 5), 0);
    cr_assert_eq(pread(came, text, 3, 0), 3);
    cr_assert_str_eq(text, "abc");
    close(came);
    close(fd);
    link_close(link);
}

Test(link_client, get_returns_the_value_and_its_descriptor)
{
    struct link *link = agent_end_opened();
    struct fsdp_link_header header;
    struct fsdp_link_get get;
    char value[64], text[4] = "";
    size_t size = sizeof value;
    int fd;

    agent_end_say(FSDP_LINK_VALUE, 1, "world", 5, agent_end_file("xyz", 3));
    cr_assert_eq(link_get(link, "k", value, &size, &fd, &err), FSDP_OK, "%s", err.message);

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
    link_close(link);
}

Test(link_client, a_value_of_the_largest_size_travels_both_ways)
{
    struct link *link = agent_end_opened();
    char *value = malloc(FSDP_LINK_VALUE_BYTES + 1), *back = malloc(FSDP_LINK_VALUE_BYTES + 200);
    struct fsdp_link_header header;
    size_t size = FSDP_LINK_VALUE_BYTES;

    memset(value, 'v', FSDP_LINK_VALUE_BYTES + 1);
    cr_assert_eq(link_put(link, "k", value, FSDP_LINK_VALUE_BYTES, -1, &err), FSDP_OK);
    cr_assert_eq(agent_end_heard(&header, back, FSDP_LINK_VALUE_BYTES + 200, NULL),
                 sizeof(struct fsdp_link_put) + FSDP_LINK_VALUE_BYTES);
    agent_end_say(FSDP_LINK_VALUE, 1, value, FSDP_LINK_VALUE_BYTES, -1);
    cr_assert_eq(link_get(link, "k", back, &size, NULL, &err), FSDP_OK);
    cr_assert_eq(size, FSDP_LINK_VALUE_BYTES);
    cr_assert_eq(memcmp(back, value, size), 0);

    agent_end_say(FSDP_LINK_VALUE, 2, value, FSDP_LINK_VALUE_BYTES + 1, -1);
    cr_assert_eq(link_get(link, "k", back, &size, NULL, &err), FSDP_ERR_FORMAT);
    cr_assert_not_null(strstr(err.message, "too long"));
    link_close(link);
    free(value);
    free(back);
}

Test(link_client, keys_and_values_out_of_bounds_are_refused_and_not_sent)
{
    struct link *link = agent_end_opened();
    char key[FSDP_LINK_KEY_BYTES + 1], value[4];
    size_t size = sizeof value;
    int n_before = agent_end_n_open_descriptors();

    memset(key, 'k', sizeof key);
    key[FSDP_LINK_KEY_BYTES] = '\0';
    cr_assert_eq(link_put(link, key, "v", 1, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_put(link, "", "v", 1, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_put(link, NULL, "v", 1, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_put(link, "k", NULL, 1, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_put(link, "k", "v", FSDP_LINK_VALUE_BYTES + 1, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_put(link, "k", "v", 1, 9999, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_get(link, key, value, &size, NULL, &err), FSDP_ERR_ARG);
    cr_assert_eq(recv(agent_end.fd, value, 1, MSG_DONTWAIT), -1);

    key[FSDP_LINK_KEY_BYTES - 1] = '\0';
    cr_assert_eq(link_put(link, key, "v", 1, -1, &err), FSDP_OK, "the longest key");
    agent_end_say(FSDP_LINK_VALUE, 1, "12345", 5, agent_end_page());
    cr_assert_eq(link_get(link, "k", value, &size, NULL, &err), FSDP_ERR_FORMAT);
    cr_assert_eq(agent_end_n_open_descriptors(), n_before);
    link_close(link);
}

Test(link_client, packets_of_other_kinds_that_come_first_are_kept)
{
    struct fsdp_link_published published;
    struct fsdp_link_notice notice;
    struct link *link = agent_end_opened();
    char value[8];
    size_t size = sizeof value;

    say_published(20, FSDP_OK);
    say_notice(FSDP_NOTICE_SAVE_AND_STOP, 30);
    agent_end_say(FSDP_LINK_VALUE, 99, "old", 3,
                  agent_end_page()); /* the answer to a question nobody asks any more */
    say_published(10, FSDP_ERR_IO);
    say_notice(FSDP_NOTICE_SAVE_AND_STOP, 31);
    agent_end_say(FSDP_LINK_VALUE, 1, "v", 1, -1);
    cr_assert_eq(link_get(link, "k", value, &size, NULL, &err), FSDP_OK);

    cr_assert_eq(link_published(link, 10, &published, &err), FSDP_OK);
    cr_assert_eq(published.status, FSDP_ERR_IO);
    cr_assert_eq(link_published(link, 20, &published, &err), FSDP_OK);
    cr_assert_eq(published.status, FSDP_OK);
    cr_assert(link_poll_notice(link, &notice));
    cr_assert_eq(notice.stop_after_step, 30);
    cr_assert(link_poll_notice(link, &notice));
    cr_assert_eq(notice.stop_after_step, 31);
    cr_assert_not(link_poll_notice(link, &notice));
    link_close(link);
}

/* --- the end of things ----------------------------------------------------------------------------------- */

enum { ROUNDS = 200 };

static void *get_many(void *user)
{
    char value[8];

    for (int i = 0; i < ROUNDS; i++) {
        size_t size = sizeof value;

        cr_assert_eq(link_get(user, "k", value, &size, NULL, NULL), FSDP_OK);
    }
    return NULL;
}

/* The second thread of a model opens no group, but a program's own thread may poll at any time. */
Test(link_client, a_get_is_answered_while_another_thread_polls, .timeout = 60)
{
    struct link *link = agent_end_opened();
    struct pollfd heard = { .fd = agent_end.fd, .events = POLLIN };
    struct fsdp_link_header header;
    struct fsdp_link_get get;
    pthread_t thread;

    cr_assert_eq(pthread_create(&thread, NULL, get_many, link), 0);
    for (int i = 0; i < ROUNDS; i++) {
        const struct fsdp_link_notice said = { .kind = FSDP_NOTICE_SAVE_AND_STOP, .stop_after_step = i };
        struct fsdp_link_notice notice;

        cr_assert_eq(poll(&heard, 1, -1), 1);
        agent_end_heard(&header, &get, sizeof get, NULL);
        agent_end_say(FSDP_LINK_NOTICE, 0, &said, sizeof said, -1);
        agent_end_say(FSDP_LINK_VALUE, header.tag, "x", 1, -1);
        while (!link_poll_notice(link, &notice))
            sched_yield();
        cr_assert_eq(notice.stop_after_step, i);
        cr_assert_not(link_poll_notice(link, &notice), "notice %d came twice", i);
    }
    pthread_join(thread, NULL);
    link_close(link);
}

Test(link_client, a_hang_up_ends_every_wait)
{
    struct fsdp_link_published published;
    struct fsdp_link_saved saved = { .step = 1 };
    struct fsdp_link_notice notice;
    char value[8];
    size_t size = sizeof value;

    for (int point = 0; point < 6; point++) {
        struct link *link = agent_end_opened();
        enum fsdp_status status = FSDP_OK;

        close(agent_end.fd);
        switch (point) {
        case 0:
            status = link_put(link, "k", "v", 1, -1, &err);
            break;
        case 1:
            status = link_get(link, "k", value, &size, NULL, &err);
            break;
        case 2:
            status = link_event(link, "{}", &err);
            break;
        case 3:
            status = link_saved(link, &saved, -1, &err);
            break;
        case 4:
            status = link_published(link, 1, &published, &err);
            break;
        case 5:
            status = link_check(link, &err);
            break;
        }
        cr_assert_eq(status, FSDP_ERR_PEER, "point %d: %s", point, err.message);
        cr_assert_eq(link_check(link, &err), FSDP_ERR_PEER, "it sticks");
        cr_assert_not(link_poll_notice(link, &notice));
        link_close(link);
    }
}

Test(link_client, what_came_before_a_hang_up_is_not_lost)
{
    struct fsdp_link_published published;
    struct fsdp_link_notice notice;
    struct link *link = agent_end_opened();
    char value[8];
    size_t size = sizeof value;

    agent_end_say(FSDP_LINK_VALUE, 1, "v", 1, -1);
    say_published(4, FSDP_OK);
    say_notice(FSDP_NOTICE_SAVE_AND_STOP, -1);
    shutdown(agent_end.fd, SHUT_WR);
    cr_assert_eq(link_get(link, "k", value, &size, NULL, &err), FSDP_OK);
    cr_assert_eq(link_published(link, 4, &published, &err), FSDP_OK);
    cr_assert(link_poll_notice(link, &notice));
    cr_assert_eq(link_check(link, &err), FSDP_ERR_PEER);
    close(agent_end.fd);
    link_close(link);
}

Test(link_client, an_abort_ends_every_wait_and_is_still_a_notice)
{
    struct fsdp_link_notice notice;
    struct link *link = agent_end_opened();
    char value[8];
    size_t size = sizeof value;

    say_notice(FSDP_NOTICE_ABORT, 0);
    cr_assert_eq(link_get(link, "k", value, &size, NULL, &err), FSDP_ERR_PEER);
    cr_assert_not_null(strstr(err.message, "waiting for k"), "%s", err.message);
    cr_assert_eq(link_check(link, &err), FSDP_ERR_PEER);
    cr_assert(link_poll_notice(link, &notice));
    cr_assert_eq(notice.kind, FSDP_NOTICE_ABORT);
    link_close(link);
}

Test(link_client, the_abort_word_ends_a_wait_without_a_packet)
{
    struct link *link = agent_end_opened();
    char value[8];
    size_t size = sizeof value;

    atomic_store(&link_progress(link)->abort_word, 1);
    cr_assert_eq(link_get(link, "k", value, &size, NULL, &err), FSDP_ERR_PEER);
    link_close(link);
}

Test(link_client, packets_that_workers_do_not_get_break_the_link)
{
    static const int types[] = {
        0, FSDP_LINK_HELLO, FSDP_LINK_PUT, FSDP_LINK_GET, FSDP_LINK_EVENT, FSDP_LINK_SAVED, 77
    };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct link *link = agent_end_opened();

        agent_end_say(types[i], 0, NULL, 0, -1);
        cr_assert_eq(link_check(link, &err), FSDP_ERR_FORMAT, "type %d", types[i]);
        close(agent_end.fd);
        link_close(link);
    }
    for (int type = FSDP_LINK_PUBLISHED; type <= FSDP_LINK_NOTICE; type++) {
        struct link *link = agent_end_opened();

        agent_end_say(type, 0, "123", 3, -1);
        cr_assert_eq(link_check(link, &err), FSDP_ERR_FORMAT, "type %d", type);
        close(agent_end.fd);
        link_close(link);
    }
}

Test(link_client, events_and_saves_are_sent_as_they_are)
{
    struct fsdp_link_saved saved = { .step = 9, .file = "f" }, got;
    struct link *link = agent_end_opened();
    struct fsdp_link_header header;
    char text[FSDP_LINK_EVENT_BYTES + 2];
    int fd = agent_end_file("m", 1), came;

    cr_assert_eq(link_event(link, "{\"event\": \"resume\"}", &err), FSDP_OK);
    cr_assert_eq(agent_end_heard(&header, text, sizeof text, NULL), 19);
    cr_assert_eq(header.type, FSDP_LINK_EVENT);
    memset(text, ' ', sizeof text);
    text[0] = '{', text[sizeof text - 2] = '}', text[sizeof text - 1] = '\0';
    cr_assert_eq(link_event(link, text, &err), FSDP_ERR_ARG, "too long");
    cr_assert_eq(link_event(link, "[1]", &err), FSDP_ERR_ARG, "no object");
    cr_assert_eq(link_event(link, NULL, &err), FSDP_ERR_ARG);

    cr_assert_eq(link_saved(link, &saved, fd, &err), FSDP_OK);
    cr_assert_eq(agent_end_heard(&header, &got, sizeof got, &came), sizeof got);
    cr_assert_eq(header.type, FSDP_LINK_SAVED);
    cr_assert_eq(memcmp(&got, &saved, sizeof got), 0);
    cr_assert(came >= 0);
    close(came);
    close(fd);
    link_close(link);
}

/* --- a world of one -------------------------------------------------------------------------------------- */

Test(link_client, without_an_agent_a_process_is_a_world_of_one)
{
    struct fsdp_link_published published;
    struct fsdp_link_notice notice;
    struct fsdp_link_saved saved = { .step = 1 };
    struct link *link = NULL;
    char value[16], text[2];
    size_t size = sizeof value;
    int fd = agent_end_file("q", 1), back = -1, n_before;

    unsetenv(FSDP_LINK_FD_ENV);
    cr_assert_eq(link_open(&link, &err), FSDP_OK);
    cr_assert(link_alone(link));
    cr_assert_eq(link_fd(link), -1);
    cr_assert_eq(link_hello(link)->world_size, 1);
    cr_assert_eq(link_hello(link)->resume_step, -1);
    cr_assert_null(link_job(link, NULL));
    cr_assert_eq(link_progress(link)->magic, FSDP_PROGRESS_MAGIC);

    n_before = agent_end_n_open_descriptors();
    cr_assert_eq(link_get(link, "k", value, &size, NULL, &err), FSDP_ERR_NOT_FOUND);
    cr_assert_eq(link_put(link, "k", "v", 1, fd, &err), FSDP_OK);
    cr_assert_eq(link_put(link, "k", "v", 1, fd, &err), FSDP_ERR_ARG, "a key is put once");
    cr_assert_eq(link_get(link, "k", value, &size, &back, &err), FSDP_OK);
    cr_assert_eq(size, 1);
    cr_assert_eq(pread(back, text, 1, 0), 1);
    close(back);
    size = 0;
    cr_assert_eq(link_get(link, "k", value, &size, NULL, &err), FSDP_ERR_FORMAT);
    cr_assert_eq(agent_end_n_open_descriptors(), n_before + 1, "the one that is kept");

    cr_assert_eq(link_event(link, "{}", &err), FSDP_OK);
    cr_assert_eq(link_check(link, &err), FSDP_OK);
    cr_assert_not(link_poll_notice(link, &notice));
    cr_assert_eq(link_saved(link, &saved, -1, &err), FSDP_ERR_ARG);
    cr_assert_eq(link_published(link, 1, &published, &err), FSDP_ERR_ARG);
    link_close(link);
    cr_assert_eq(agent_end_n_open_descriptors(), n_before);
    close(fd);
    link_close(NULL);
}
