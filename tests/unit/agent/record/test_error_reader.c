#include "agent/record/error_reader.h"

#include <criterion/criterion.h>
#include <semaphore.h>
#include <string.h>

TestSuite(error_reader, .timeout = 300);

static uv_loop_t loop;
static struct error_reader *reader;
static sem_t disk; /* each file waits for it once */

/* What the loop was told about a file. */
struct told {
    int n, nth;
    bool late;
    char message[ERRORS_MESSAGE_BYTES];
};

static int n_told;

static bool read_slowly(struct errors_detail *detail, const char *path)
{
    while (sem_wait(&disk) != 0)
        ;
    if (path[0] == '/')
        strcpy(detail->message, path);
    return path[0] == '/';
}

static void on_told(void *arg, struct errors_detail *detail)
{
    struct told *told = arg;

    told->n++;
    told->nth = n_told++;
    told->late = detail == NULL;
    if (detail != NULL)
        strcpy(told->message, detail->message);
}

static void set_up(void)
{
    sem_init(&disk, 0, 0);
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(error_reader_create(&reader, &loop, read_slowly, NULL), FSDP_OK);
}

static void answer(int n_files)
{
    while (n_files-- > 0)
        sem_post(&disk);
}

/* Runs the loop until so many were told. */
static void run_until(int n)
{
    while (n_told < n)
        uv_run(&loop, UV_RUN_ONCE);
}

/* The thread may still have a file of which the loop was told before. */
static void close_reader(void)
{
    while (!error_reader_close(reader))
        uv_run(&loop, UV_RUN_NOWAIT);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_expect_eq(uv_loop_close(&loop), 0, "a handle was left open");
    sem_destroy(&disk);
}

Test(error_reader, files_are_told_in_their_order_with_what_they_say, .init = set_up, .fini = close_reader)
{
    struct told told[3] = { 0 };

    cr_assert(error_reader_ask(reader, "/a", on_told, &told[0]));
    cr_assert(error_reader_ask(reader, "none", on_told, &told[1]));
    cr_assert(error_reader_ask(reader, "/c", on_told, &told[2]));
    answer(3);
    run_until(3);
    for (int i = 0; i < 3; i++) {
        cr_expect_eq(told[i].n, 1);
        cr_expect_eq(told[i].nth, i);
        cr_expect_not(told[i].late);
    }
    cr_expect_str_eq(told[0].message, "/a");
    cr_expect_str_eq(told[1].message, "");
    cr_expect_str_eq(told[2].message, "/c");
}

Test(error_reader, a_disk_that_does_not_answer_is_waited_for_only_so_long, .init = set_up,
     .fini = close_reader)
{
    struct told late[2] = { 0 }, next = { 0 };
    const uint64_t began_ms = uv_now(&loop);

    cr_assert(error_reader_ask(reader, "/a", on_told, &late[0]));
    cr_assert(error_reader_ask(reader, "/b", on_told, &late[1]));
    run_until(2);
    cr_expect_geq(uv_now(&loop) - began_ms, (uint64_t)ERROR_READER_MS);
    cr_expect(late[0].late && late[1].late);
    cr_expect_not(error_reader_close(reader), "the thread waits for the disk");

    cr_assert(error_reader_ask(reader, "/c", on_told, &next));
    answer(3);
    run_until(3);
    cr_expect_not(next.late, "it answers again");
    cr_expect_str_eq(next.message, "/c");
    cr_expect(late[0].n == 1 && late[1].n == 1, "a late answer is told to no one");
}

Test(error_reader, given_up_at_once, .init = set_up, .fini = close_reader)
{
    struct told told[2] = { 0 };

    cr_assert(error_reader_ask(reader, "/a", on_told, &told[0]));
    cr_assert(error_reader_ask(reader, "/b", on_told, &told[1]));
    error_reader_give_up(reader);
    cr_expect(told[0].late && told[1].late);
    error_reader_give_up(reader);
    answer(2);
    cr_expect(told[0].n == 1 && told[1].n == 1);
}
