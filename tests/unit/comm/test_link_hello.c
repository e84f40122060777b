/*
 * How the worker's end of the link begins. The hello and the job are read. What is neither is refused without
 * leaving a descriptor open.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shard_runtime/comm/link_impl.h"
#include "tests/unit/comm/agent_end.h"

static struct fsdp_err err;

Test(link_hello, hello_job_and_page_are_read_and_the_environment_is_cleared)
{
    const struct fsdp_link_hello hello = agent_end_two_ranks();
    const char job[] = "{\"run\": {}}";
    const int fd = agent_end_page();
    struct fsdp_progress *seen = mmap(NULL, FSDP_PROGRESS_BYTES, PROT_READ, MAP_SHARED, fd, 0);
    struct link *link = NULL;
    size_t length = 0;

    agent_end_open();
    agent_end_say(FSDP_LINK_HELLO, 0, &hello, sizeof hello, fd);
    agent_end_say(FSDP_LINK_JOB, 0, NULL, 0, agent_end_file(job, sizeof job - 1));
    cr_assert_eq(link_open(&link, &err), FSDP_OK, "%s", err.message);

    cr_assert_eq(link_hello(link)->rank, 1);
    cr_assert_eq(link_hello(link)->resume_step, 7);
    cr_assert_str_eq(link_job(link, &length), job);
    cr_assert_eq(length, sizeof job - 1);
    cr_assert_not(link_alone(link));
    cr_assert_eq(link->fd, agent_end.workers_fd);
    cr_assert_null(getenv(FSDP_LINK_FD_ENV));
    cr_assert(fcntl(agent_end.workers_fd, F_GETFD) & FD_CLOEXEC);
    atomic_store(&link_progress(link)->step, 5);
    cr_assert_eq(atomic_load(&seen->step), 5);
    cr_assert_eq(seen->magic, FSDP_PROGRESS_MAGIC);
    link_close(link);
    munmap(seen, FSDP_PROGRESS_BYTES);

    link = agent_end_opened();
    cr_assert_null(link_job(link, &length));
    cr_assert_eq(length, 0);
    link_close(link);
}

/* Each way in which a first packet is no hello; `why` is a part of the message. */
static void refuse(const char *why, enum fsdp_status expected)
{
    struct link *link = (struct link *)1;
    int before;

    err = (struct fsdp_err){ 0 };
    before = agent_end_n_open_descriptors();
    cr_assert_eq(link_open(&link, &err), expected, "%s: %s", why, err.message);
    cr_assert_null(link);
    cr_assert_not_null(strstr(err.message, why), "'%s' is not in: %s", why, err.message);
    cr_assert_leq(agent_end_n_open_descriptors(), before);
    close(agent_end.fd);
}

enum { HELLO = FSDP_LINK_HELLO, SIZE = sizeof(struct fsdp_link_hello) };

Test(link_hello, what_is_no_hello_is_refused)
{
    static const struct {
        const char *why;
        int newer, type;
        uint32_t size;
        size_t sent;
        int n_pages;
    } cases[] = {
        { "of the link's protocol, this library", 1, HELLO, SIZE, SIZE, 0 },
        { "size is not", 0, HELLO, SIZE + 1, SIZE, 0 },
        { "not this version's hello", 0, HELLO, SIZE - 1, SIZE - 1, 1 },
        { "not this version's hello", 0, FSDP_LINK_NOTICE, SIZE, SIZE, 1 },
        { "without a progress page", 0, HELLO, SIZE, SIZE, 0 },
        { "too many descriptors", 0, HELLO, SIZE, SIZE, 2 },
        { "too many descriptors", 0, HELLO, SIZE, SIZE, 8 },
    };
    const struct fsdp_link_hello hello = agent_end_two_ranks();

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct fsdp_link_header header = { FSDP_LINK_MAGIC,
                                                 (uint16_t)(FSDP_LINK_VERSION + cases[i].newer),
                                                 (uint16_t)cases[i].type, 0, cases[i].size };
        int fds[8];

        agent_end_open();
        for (int k = 0; k < cases[i].n_pages; k++)
            fds[k] = agent_end_page();
        agent_end_say_raw(&header, &hello, cases[i].sent, fds, cases[i].n_pages);
        for (int k = 0; k < cases[i].n_pages; k++)
            close(fds[k]);
        refuse(cases[i].why, FSDP_ERR_FORMAT);
    }
    agent_end_open();
    close(agent_end.fd);
    refuse("is gone", FSDP_ERR_PEER);
    agent_end_open();
    cr_assert_eq(send(agent_end.fd, "abc", 3, 0), 3);
    refuse("not of the link's", FSDP_ERR_FORMAT);
    agent_end_open();
    agent_end_say_raw(&(struct fsdp_link_header){ 1, 1, 1, 0, 0 }, NULL, 0, NULL, 0);
    refuse("not of the link's", FSDP_ERR_FORMAT);
    agent_end_open();
    agent_end_say(HELLO, 0, &hello, SIZE, agent_end_file("x", 1));
    refuse("without a progress page", FSDP_ERR_FORMAT);
}

Test(link_hello, a_hello_whose_numbers_cannot_be_is_refused)
{
    struct fsdp_link_hello bad[11];

    for (int i = 0; i < 11; i++)
        bad[i] = agent_end_two_ranks();
    bad[0].world_size = 0;
    bad[1].rank = 2;
    bad[2].local_world_size = 0;
    bad[3].local_world_size = 3;
    bad[4].local_rank = 2;
    bad[5].n_nodes = 0;
    bad[6].node_rank = 1;
    bad[7].threads = 0;
    memset(bad[8].run_dir, 'x', sizeof bad[8].run_dir);
    memset(bad[9].node_address, 'x', sizeof bad[9].node_address);
    bad[10].n_nodes = 2; /* without a lease */
    for (int i = 0; i < 11; i++) {
        agent_end_open();
        agent_end_say(FSDP_LINK_HELLO, 0, &bad[i], sizeof bad[i], agent_end_page());
        refuse("ranks that cannot be", FSDP_ERR_FORMAT);
    }
}

Test(link_hello, a_job_that_is_no_file_is_refused)
{
    int huge;

    for (int way = 0; way < 3; way++) {
        agent_end_open();
        agent_end_say_hello();
        if (way == 2) /* the second of two */
            agent_end_say(FSDP_LINK_JOB, 0, NULL, 0, agent_end_page());
        agent_end_say(FSDP_LINK_JOB, 0, "x", way == 1, way == 0 ? -1 : agent_end_page());
        refuse("a job packet that is not one", FSDP_ERR_FORMAT);
    }
    agent_end_open();
    agent_end_say_hello();
    huge = memfd_create("huge", MFD_CLOEXEC);
    cr_assert_eq(ftruncate(huge, 1LL << 40), 0);
    agent_end_say(FSDP_LINK_JOB, 0, NULL, 0, huge);
    refuse("sensible size", FSDP_ERR_FORMAT);
}

Test(link_hello, an_environment_that_names_no_link_is_refused)
{
    static const char *const texts[] = { "", "x", "3x", "-1", "99999999999999999999", "1000" };
    char text[16];
    int pipe_ends[2];

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        setenv(FSDP_LINK_FD_ENV, texts[i], 1);
        refuse(FSDP_LINK_FD_ENV, FSDP_ERR_FORMAT);
    }
    cr_assert_eq(pipe(pipe_ends), 0);
    snprintf(text, sizeof text, "%d", pipe_ends[0]);
    setenv(FSDP_LINK_FD_ENV, text, 1);
    refuse("is not a link", FSDP_ERR_FORMAT);
}
