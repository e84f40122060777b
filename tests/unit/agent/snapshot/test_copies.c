/*
 * Copies of snapshots between two nodes, each with a process of its own: what is filled on one is soon on the
 * other, a node in the place of a lost one gets it back, and what was damaged on the way is never taken.
 */
#include "agent/snapshot/copies.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/snapshot/copy_image.h"
#include "shard_runtime/shardfile/snapshot_wait.h"

/* As fsdprun does in its main(): this program is executed again as one of these processes. */
__attribute__((constructor)) static void be_the_process(int argc, char **argv)
{
    copies_process_main(argc, argv);
}

enum { NODES = 2, RANKS = 2, DATA_BYTES = 3 << 20, SLOT_BYTES = 4 << 20 };

static struct node {
    struct copies *copies;
    struct segments *own, *held;
    struct fsdp_snapshot_head *heads[RANKS]; /* of its own, as its workers map them */
    int n_ready, n_lines, number;
    char line[512], value[300]; /* its last line; and what it has put */
    bool wants[NODES];
} nodes[NODES];
static uv_loop_t loop;
static uv_timer_t tick;

static void deliver(struct node *to, int from)
{
    char key[32];

    snprintf(key, sizeof key, "copies.%d", from);
    cr_assert(copies_take(to->copies, key, nodes[from].value, strlen(nodes[from].value) + 1));
}

static void on_put(void *arg, const char *key, const void *value, size_t size_bytes)
{
    struct node *node = arg;

    cr_assert_eq(atoi(key + strlen("copies.")), node->number);
    cr_assert_leq(size_bytes, sizeof node->value);
    memcpy(node->value, value, size_bytes);
    for (int i = 0; i < NODES; i++)
        if (i != node->number && nodes[i].wants[node->number])
            deliver(&nodes[i], node->number);
}

static void on_want(void *arg, const char *key)
{
    struct node *node = arg;
    const int from = atoi(key + strlen("copies."));

    node->wants[from] = true;
    if (nodes[from].value[0] != '\0')
        deliver(node, from);
}

static void on_ready(void *arg)
{
    ((struct node *)arg)->n_ready++;
}

static void on_line(void *arg, const char *words)
{
    struct node *node = arg;

    node->n_lines++;
    snprintf(node->line, sizeof node->line, "%s", words);
}

static void on_tick(uv_timer_t *timer)
{
}

/* Node i gets memory, as a worker and an agent that are new have it. */
static void make_memory(int i)
{
    segments_destroy(nodes[i].own);
    segments_destroy(nodes[i].held);
    cr_assert_eq(segments_create(&nodes[i].own, RANKS, NULL), FSDP_OK);
    cr_assert_eq(segments_create(&nodes[i].held, RANKS, NULL), FSDP_OK);
}

static void begin_with(int i, int64_t step, int fetch_from, unsigned char key)
{
    const struct copies_handlers handlers = { &nodes[i], on_put, on_want, on_ready, on_line };
    struct copies_seat seat = { .node_rank = i,
                                .n_nodes = NODES,
                                .address = "127.0.0.1",
                                .fetch_from = fetch_from,
                                .begin = { .n = RANKS,
                                           .first_rank = (uint32_t)(i * RANKS),
                                           .world_size = NODES * RANKS,
                                           .from = { step, 0 } } };

    memset(seat.begin.token, key, sizeof seat.begin.token);
    nodes[i].number = i;
    nodes[i].n_ready = nodes[i].n_lines = 0;
    nodes[i].value[0] = '\0';
    memset(nodes[i].wants, 0, sizeof nodes[i].wants);
    cr_assert_eq(copies_begin(&nodes[i].copies, &loop, &seat, nodes[i].own, nodes[i].held, &handlers, NULL),
                 FSDP_OK);
}

static void begin(int i, int64_t step, int fetch_from)
{
    begin_with(i, step, fetch_from, 5);
}

static void until_ready(int i)
{
    while (nodes[i].n_ready == 0)
        uv_run(&loop, UV_RUN_ONCE);
}

static void stop(int i)
{
    copies_stop(nodes[i].copies);
    nodes[i].copies = NULL;
}

static void set_up(void)
{
    memset(nodes, 0, sizeof nodes);
    uv_loop_init(&loop);
    uv_timer_init(&loop, &tick);
    uv_timer_start(&tick, on_tick, 2, 2); /* so that the loop comes back to the test */
    for (int i = 0; i < NODES; i++)
        make_memory(i);
}

/* Ends the processes and reaps them. */
static void tear_down(void)
{
    for (int i = 0; i < NODES; i++)
        stop(i);
    uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(uv_loop_close(&loop), 0, "a handle was left open");
    for (int i = 0; i < NODES; i++) {
        segments_destroy(nodes[i].own);
        segments_destroy(nodes[i].held);
    }
    while (waitpid(-1, NULL, 0) > 0)
        ;
}

TestSuite(copies, .init = set_up, .fini = tear_down, .timeout = 60);

static unsigned char byte_of(int rank, int64_t step, size_t i)
{
    return (unsigned char)((i * 31 >> 3) + (size_t)rank * 7 + (size_t)step * 13);
}

/* Maps the segment of a rank as its worker does, and lays it out if it is new. */
static struct fsdp_snapshot_head *open_segment(int i, int rank)
{
    const struct snapshot_owner owner = { (uint32_t)(i * RANKS + rank), NODES * RANKS, 99 };
    const int fd = segments_fd(nodes[i].own, rank);
    struct fsdp_snapshot_head *head;

    cr_assert_eq(ftruncate(fd, (off_t)snapshot_segment_bytes(SLOT_BYTES)), 0);
    head = mmap(NULL, FSDP_SNAPSHOT_HEAD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert(head != MAP_FAILED);
    if (!snapshot_fits(head, &owner, SLOT_BYTES, snapshot_segment_bytes(SLOT_BYTES)))
        snapshot_lay_out(head, &owner, SLOT_BYTES);
    return nodes[i].heads[rank] = head;
}

static void fill(int i, int64_t step)
{
    const struct snapshot_parts parts = { DATA_BYTES, 0, 100 };
    unsigned char *data = malloc(DATA_BYTES + 100);

    for (int rank = 0; rank < RANKS; rank++) {
        struct fsdp_snapshot_head *head = open_segment(i, rank);
        const int slot = snapshot_choose(head, -1);

        for (size_t k = 0; k < DATA_BYTES + 100; k++)
            data[k] = byte_of(i * RANKS + rank, step, k);
        snapshot_begin(head, slot);
        cr_assert_eq(
            pwrite(segments_fd(nodes[i].own, rank), data, DATA_BYTES + 100, (off_t)head->slots[slot].offset),
            DATA_BYTES + 100);
        snapshot_complete(head, slot, step, 0, &parts);
        snapshot_wake(head);
    }
    free(data);
}

static void until_copied(int i)
{
    for (int rank = 0; rank < RANKS; rank++)
        while (!snapshot_is_copied(nodes[i].heads[rank]))
            uv_run(&loop, UV_RUN_ONCE);
}

/* Is that step of the rank in this segment, byte for byte? */
static bool has(int fd, int rank, int64_t step)
{
    unsigned char *data = malloc(DATA_BYTES + 100);
    struct fsdp_snapshot_head head;
    int slot;
    bool same;

    cr_assert_eq(pread(fd, &head, sizeof head, 0), (ssize_t)sizeof head);
    slot = snapshot_find(&head, step);
    same = slot >= 0 && head.rank == (uint32_t)rank &&
           pread(fd, data, DATA_BYTES + 100, (off_t)head.slots[slot].offset) == DATA_BYTES + 100;
    for (size_t k = 0; same && k < DATA_BYTES + 100; k++)
        same = data[k] == byte_of(rank, step, k);
    free(data);
    return same;
}

/* Both nodes have filled these steps, and each has them of the other. */
static void copy_two_steps(void)
{
    for (int i = 0; i < NODES; i++)
        begin(i, -1, -1);
    for (int i = 0; i < NODES; i++)
        until_ready(i);
    for (int64_t step = 7; step < 9; step++) {
        for (int i = 0; i < NODES; i++)
            fill(i, step);
        for (int i = 0; i < NODES; i++)
            until_copied(i);
    }
}

/* Node 1 is lost with all that it has, and another one sits there from that step on. */
static void replace(int64_t step)
{
    for (int i = 0; i < NODES; i++)
        stop(i);
    make_memory(1);
    begin(0, step, -1);
    begin(1, step, 0);
    until_ready(0);
    until_ready(1);
}

Test(copies, what_a_node_fills_is_on_the_other_and_in_the_same_slots)
{
    copy_two_steps();
    for (int i = 0; i < NODES; i++)
        for (int rank = 0; rank < RANKS; rank++)
            for (int64_t step = 7; step < 9; step++)
                cr_expect(has(segments_fd(nodes[1 - i].held, rank), i * RANKS + rank, step),
                          "node %d, rank %d, step %d", i, rank, (int)step);
    for (int i = 0; i < NODES; i++) {
        int first_rank;
        const struct snapshot_list list = segments_copies(nodes[i].held, NODES * RANKS, &first_rank);

        cr_expect_eq(nodes[i].n_ready, 1);
        cr_expect_eq(first_rank, (1 - i) * RANKS);
        cr_expect_eq(list.held[0].step, 8);
        cr_expect_eq(list.held[1].step, 7);
        cr_expect_gt(segments_bytes(nodes[i].held), 2 * RANKS * DATA_BYTES);
    }
}

Test(copies, a_node_in_the_place_of_a_lost_one_gets_its_step_back)
{
    copy_two_steps();
    replace(7);
    for (int rank = 0; rank < RANKS; rank++) {
        cr_expect(has(segments_fd(nodes[1].own, rank), RANKS + rank, 7), "rank %d", rank);
        cr_expect_not(has(segments_fd(nodes[1].own, rank), RANKS + rank, 8), "of another history");
        cr_expect_not(has(segments_fd(nodes[0].own, rank), rank, 8), "there too");
        open_segment(1, rank);
        open_segment(0, rank);
    }
    cr_expect_eq(nodes[1].n_lines, 0, "%s", nodes[1].line);
    /* what the lost node had held for node 0 is there again, without a new filling */
    until_copied(0);
    for (int rank = 0; rank < RANKS; rank++)
        cr_expect(has(segments_fd(nodes[1].held, rank), rank, 7), "rank %d", rank);
    fill(1, 8);
    until_copied(1);
    cr_expect(has(segments_fd(nodes[0].held, 0), RANKS, 8));
}

/* One byte of a copy changes in memory. */
static void damage(int fd, int64_t step)
{
    struct fsdp_snapshot_head head;
    unsigned char byte;
    off_t at;

    cr_assert_eq(pread(fd, &head, sizeof head, 0), (ssize_t)sizeof head);
    at = (off_t)head.slots[snapshot_find(&head, step)].offset + DATA_BYTES / 2;
    cr_assert_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 16;
    cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
}

Test(copies, a_copy_that_was_damaged_in_memory_is_not_taken)
{
    copy_two_steps();
    damage(segments_fd(nodes[0].held, 1), 8);
    replace(8);
    cr_expect(has(segments_fd(nodes[1].own, 0), RANKS, 8), "the other rank's is sound");
    cr_expect_eq(segments_held(nodes[1].own, RANKS, NODES * RANKS).held[0].step, -1);
    cr_expect_not_null(strstr(nodes[1].line, "step 8 could not be fetched"), "%s", nodes[1].line);
    cr_expect_not_null(strstr(nodes[1].line, "checksum"), "%s", nodes[1].line);
}

Test(copies, a_step_that_the_other_node_does_not_have_is_not_fetched)
{
    copy_two_steps();
    replace(5);
    cr_expect_eq(segments_held(nodes[1].own, RANKS, NODES * RANKS).held[0].step, -1);
    cr_expect_not_null(strstr(nodes[1].line, "does not have that snapshot"), "%s", nodes[1].line);
}

Test(copies, a_process_without_the_key_of_the_generation_gets_nothing)
{
    begin_with(0, -1, -1, 5);
    begin_with(1, -1, 0, 6);
    until_ready(1);
    cr_expect_not_null(strstr(nodes[1].line, "could not be fetched"), "%s", nodes[1].line);
    fill(1, 7);
    until_copied(1); /* which means here that no worker waits for a copy */
    cr_expect_not(has(segments_fd(nodes[0].held, 0), RANKS, 7));
    while (nodes[1].n_lines < 2)
        uv_run(&loop, UV_RUN_ONCE);
    cr_expect_not_null(strstr(nodes[1].line, "are not copied to another one any more"), "%s", nodes[1].line);
}

/* The first process that was begun, a child of this one. */
static pid_t first_process(void)
{
    char path[64];
    FILE *file;
    int pid = 0;

    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    file = fopen(path, "r");
    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "%d", &pid), 1);
    fclose(file);
    return pid;
}

Test(copies, a_process_that_dies_before_it_listens_keeps_no_node_waiting)
{
    begin(0, -1, -1);
    cr_assert_eq(kill(first_process(), SIGKILL), 0);
    while (nodes[0].value[0] == '\0')
        uv_run(&loop, UV_RUN_ONCE);
    begin(1, -1, -1);
    for (int i = 0; i < NODES; i++)
        until_ready(i);
    fill(1, 7);
    until_copied(1);
    while (nodes[1].n_lines == 0)
        uv_run(&loop, UV_RUN_ONCE);
    cr_expect_not_null(strstr(nodes[1].line, "the other node takes no copies"), "%s", nodes[1].line);
}

Test(copies, memory_is_given_back_and_no_worker_waits_after_a_generation)
{
    copy_two_steps();
    stop(0);
    fill(0, 9);
    segments_end_copying(nodes[0].own);
    cr_expect(snapshot_is_copied(nodes[0].heads[0]));
    segments_clear(nodes[0].held);
    cr_expect_eq(segments_bytes(nodes[0].held), 0);
}

Test(copies, a_killed_process_keeps_no_worker_waiting_on_either_node)
{
    copy_two_steps();
    cr_assert_eq(kill(first_process(), SIGKILL), 0); /* node 0's */
    for (int i = 0; i < NODES; i++) {
        fill(i, 9);
        until_copied(i);
    }
    while (nodes[0].n_lines == 0 || nodes[1].n_lines == 0)
        uv_run(&loop, UV_RUN_ONCE);
    cr_expect_not_null(strstr(nodes[0].line, "the process that copies them has died"), "%s", nodes[0].line);
    cr_expect_eq(segments_held(nodes[0].own, 0, NODES * RANKS).held[0].step, 9, "its own is whole");
}

/* Connects to the process of node 0, as anyone can. */
static int connect_as_stranger(void)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(nodes[0].value)) };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

Test(copies, strangers_who_prove_nothing_keep_no_node_out)
{
    enum { MANY = 2 * RANKS + 64 + 8 }; /* more than there are places */
    int fds[MANY];
    struct pollfd oldest;

    begin(0, -1, -1);
    until_ready(0);
    for (int i = 0; i < MANY; i++)
        fds[i] = connect_as_stranger();
    begin(1, -1, -1);
    until_ready(1);
    fill(1, 7);
    until_copied(1);

    for (int rank = 0; rank < RANKS; rank++)
        cr_expect(has(segments_fd(nodes[0].held, rank), RANKS + rank, 7), "rank %d: %s", rank, nodes[1].line);
    oldest = (struct pollfd){ .fd = fds[0], .events = POLLIN };
    cr_expect_eq(poll(&oldest, 1, 30000), 1, "the oldest of them still has its place");
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
}

/* More orders at once than the socket of the process has room for. */
Test(copies, a_node_of_many_ranks_waits_until_its_process_takes_the_orders)
{
    enum { MANY = 120 };
    const struct copies_handlers handlers = { &nodes[0], on_put, on_want, on_ready, on_line };
    const struct copies_seat seat = { .n_nodes = NODES,
                                      .address = "127.0.0.1",
                                      .fetch_from = -1,
                                      .begin = { .n = MANY, .world_size = NODES * MANY, .from = { -1, 0 } } };
    struct segments *own, *held;

    cr_assert_eq(segments_create(&own, MANY, NULL), FSDP_OK);
    cr_assert_eq(segments_create(&held, MANY, NULL), FSDP_OK);
    cr_assert_eq(copies_begin(&nodes[0].copies, &loop, &seat, own, held, &handlers, NULL), FSDP_OK);
    until_ready(0);

    cr_expect_gt(atoi(nodes[0].value), 0, "it does not listen: %s", nodes[0].line);
    stop(0);
    segments_destroy(own);
    segments_destroy(held);
}
