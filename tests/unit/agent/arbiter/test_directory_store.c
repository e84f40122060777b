/*
 * The arbiter's store in a directory. It is tested on real files, on files in memory of which the nth call
 * fails, and after a power cut before the nth call.
 */
#include "agent/arbiter/directory_store.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/shardfile/files.h"
#include "tests/unit/shardfile/memory_io.h"

enum { PAGE = 4096 };

static struct fsdp_err err;
static struct leader_record out;
static const char *run_dir;

static struct arbiter_store *make(struct fsdp_io *io, const char *directory)
{
    struct arbiter_store *store;

    cr_assert(eq(int, directory_store_create(&store, io, directory, &err), FSDP_OK), "%s", err.message);
    return store;
}

static struct leader_record record_of(const char *who, uint64_t term, uint64_t sequence)
{
    struct leader_record record = { .run = 17,
                                    .term = term,
                                    .sequence = sequence,
                                    .lease_ms = 3000,
                                    .state = LEADER_LEADS,
                                    .host = "10.0.0.1",
                                    .port = 29400 };

    snprintf((char *)record.identity, sizeof record.identity, "%s", who);
    return record;
}

static enum arbiter_answer read_it(struct arbiter_store *store)
{
    return store->ops->read(store, &out, &err);
}

static enum arbiter_answer claim(struct arbiter_store *store, const char *who, uint64_t term)
{
    const struct leader_record record = record_of(who, term, 0);

    return store->ops->claim(store, &record, &out, &err);
}

static enum arbiter_answer renew(struct arbiter_store *store, const char *who, uint64_t term,
                                 uint64_t sequence)
{
    const struct leader_record record = record_of(who, term, sequence);

    return store->ops->renew(store, &record, &out, &err);
}

static bool is(const char *who, uint64_t term, uint64_t sequence)
{
    const struct leader_record want = record_of(who, term, sequence);

    return memcmp(out.identity, want.identity, sizeof want.identity) == 0 && out.term == term &&
           out.sequence == sequence;
}

static struct arbiter_store *one, *other;

static void set_up(void)
{
    run_dir = files_begin();
    one = make(&io_posix, run_dir);
    other = make(&io_posix, run_dir);
}

static void tear_down(void)
{
    one->ops->destroy(one);
    other->ops->destroy(other);
    files_end();
}

TestSuite(directory_store, .init = set_up, .fini = tear_down);

Test(directory_store, there_is_none_at_first_and_then_what_was_written_last)
{
    cr_assert(eq(int, read_it(one), ARBITER_NONE), "%s", err.message);

    cr_assert(eq(int, claim(one, "a", 1), ARBITER_DONE), "%s", err.message);
    cr_assert(eq(int, renew(one, "a", 1, 1), ARBITER_DONE), "%s", err.message);
    cr_assert(eq(int, renew(one, "a", 1, 2), ARBITER_DONE), "%s", err.message);

    cr_assert(eq(int, read_it(other), ARBITER_DONE));
    cr_assert(is("a", 1, 2));
    cr_assert(out.port == 29400);
}

Test(directory_store, only_its_user_may_look_into_the_folder)
{
    struct stat stat;

    read_it(one);

    cr_assert(lstat(files_path(run_dir, "leader"), &stat) == 0);
    cr_assert(eq(u32, stat.st_mode & 07777, 0700));
}

/* A node that waits for its host begins to read before the host has made the directory. */
Test(directory_store, without_a_run_directory_there_is_no_record_and_none_is_made)
{
    struct arbiter_store *lost = make(&io_posix, files_path(run_dir, "missing"));

    cr_assert(eq(int, read_it(lost), ARBITER_NONE));
    cr_assert(eq(int, claim(lost, "a", 1), ARBITER_FAILED));
    cr_assert(strstr(err.message, "missing/leader") != NULL, "%s", err.message);
    cr_assert(not(files_exist(files_path(run_dir, "missing"))));

    cr_assert(eq(int, mkdir(files_path(run_dir, "missing"), 0700), 0));
    cr_assert(eq(int, claim(lost, "a", 1), ARBITER_DONE), "no read has made the folder");
    lost->ops->destroy(lost);
}

Test(directory_store, a_term_is_given_once)
{
    read_it(one);
    cr_assert(eq(int, claim(one, "a", 1), ARBITER_DONE));

    cr_assert(eq(int, claim(other, "b", 1), ARBITER_TAKEN));
    cr_assert(is("a", 1, 0));
    renew(one, "a", 1, 5);
    cr_assert(eq(int, claim(other, "b", 1), ARBITER_TAKEN));

    cr_assert(is("a", 1, 5), "the newest record, not the claim");
    cr_assert(eq(int, claim(one, "a", 1), ARBITER_TAKEN), "by an earlier call");
}

Test(directory_store, a_claim_leaves_no_other_file)
{
    read_it(one);
    claim(one, "a", 1);
    claim(other, "b", 1);
    claim(other, "b", 2);

    cr_assert(eq(int, files_count(files_path(run_dir, "leader")), 3));
}

Test(directory_store, a_claim_without_a_record_after_it_is_found)
{
    read_it(one);
    claim(one, "a", 9);
    claim(one, "a", 10);

    cr_assert(eq(int, read_it(other), ARBITER_DONE));

    cr_assert(is("a", 10, 0));
}

Test(directory_store, a_claim_after_the_newest_record_is_found)
{
    read_it(one);
    claim(one, "a", 9);
    renew(one, "a", 9, 1);
    claim(one, "b", 10);
    claim(one, "c", 11);

    cr_assert(eq(int, read_it(other), ARBITER_DONE));

    cr_assert(is("c", 11, 0));
}

Test(directory_store, only_a_whole_name_is_that_of_a_claim)
{
    const char *names[] = { "term--1", "term-12.bak", "term-007", "term-99999999999999999999", "term-" };

    read_it(one);
    claim(one, "a", 3);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];

        snprintf(path, sizeof path, "leader/%s", names[i]);
        files_write(files_path(run_dir, path), "", 0);
    }

    cr_assert(eq(int, read_it(other), ARBITER_DONE));

    cr_assert(is("a", 3, 0));
}

Test(directory_store, an_unreadable_claim_has_its_term_alone)
{
    read_it(one);
    files_write(files_path(run_dir, "leader/term-4"), "nonsense", 8);

    cr_assert(eq(int, claim(one, "a", 4), ARBITER_TAKEN));
    cr_assert(is("", 4, 0));
    cr_assert(eq(int, read_it(one), ARBITER_DONE));

    cr_assert(is("", 4, 0));
}

Test(directory_store, who_renews_a_lower_term_is_deposed_and_writes_nothing)
{
    read_it(one);
    renew(one, "a", 1, 7);
    cr_assert(eq(int, renew(other, "b", 2, 1), ARBITER_DONE));

    cr_assert(eq(int, renew(one, "a", 1, 8), ARBITER_DEPOSED));
    cr_assert(is("b", 2, 1));
    read_it(one);

    cr_assert(is("b", 2, 1));
    cr_assert(eq(int, renew(one, "c", 2, 9), ARBITER_DEPOSED), "its term, but another's");
}

/* A host that looked, stood still, and wrote after another led. */
Test(directory_store, a_late_write_hides_no_higher_term)
{
    const struct leader_record late = record_of("a", 3, 99);
    unsigned char bytes[LEADER_RECORD_BYTES];
    FILE *file;

    read_it(one);
    renew(one, "a", 3, 1);
    renew(other, "b", 4, 1);
    leader_record_encode(&late, bytes);
    file = fopen(files_path(run_dir, "leader/record"), "r+");
    cr_assert(fseek(file, (3 * 2 + 1) * PAGE, SEEK_SET) == 0 && fwrite(bytes, sizeof bytes, 1, file) == 1);
    fclose(file);

    read_it(one);

    cr_assert(is("b", 4, 1));
}

Test(directory_store, a_torn_record_leaves_the_one_before_it)
{
    FILE *file;

    read_it(one);
    claim(one, "a", 3);
    renew(one, "a", 3, 1);
    renew(one, "a", 3, 2);
    file = fopen(files_path(run_dir, "leader/record"), "r+");
    cr_assert(fseek(file, 3 * 2 * PAGE + 100, SEEK_SET) == 0 && fputs("torn", file) >= 0);
    fclose(file);

    cr_assert(eq(int, read_it(one), ARBITER_DONE));
    cr_assert(is("a", 3, 1));
    cr_assert(eq(int, claim(other, "b", 3), ARBITER_TAKEN));
    cr_assert(is("a", 3, 1));
    cr_assert(truncate(files_path(run_dir, "leader/record"), 100) == 0);
    cr_assert(eq(int, read_it(one), ARBITER_DONE));

    cr_assert(is("a", 3, 0), "the newest claim is left");
}

Test(directory_store, terms_go_round_the_places)
{
    read_it(one);
    for (uint64_t term = 1; term <= 40; term++) {
        cr_assert(eq(int, claim(one, "a", term), ARBITER_DONE));
        cr_assert(eq(int, renew(one, "a", term, 1), ARBITER_DONE));
        cr_assert(eq(int, read_it(other), ARBITER_DONE));
        cr_assert(is("a", term, 1));
    }
}

/* Many agents at once, on real files. */

/* A file system that has no hard links, or no more of them. */
static int no_link_error = EPERM;

static int no_link(struct fsdp_io *io, const char *from, const char *to)
{
    (void)io, (void)from, (void)to;
    errno = no_link_error;
    return -1;
}

Test(directory_store, without_hard_links_a_term_is_given_once_too)
{
    const int errors[] = { EPERM, EOPNOTSUPP, ENOSYS, EMLINK };
    struct fsdp_io io = io_posix;
    struct arbiter_store *store = make(&io, run_dir);

    read_it(store);
    io.link = no_link;
    for (uint64_t term = 1; term <= 4; term++) {
        no_link_error = errors[term - 1];
        cr_assert(eq(int, claim(store, "a", term), ARBITER_DONE), "%s", err.message);
        cr_assert(eq(int, claim(store, "b", term), ARBITER_TAKEN));
        cr_assert(is("a", term, 0));
        cr_assert(eq(int, claim(other, "c", term), ARBITER_TAKEN), "one that has links");
        cr_assert(read_it(store) == ARBITER_DONE && is("a", term, 0));
    }
    cr_assert(eq(int, claim(other, "c", 5), ARBITER_DONE));
    cr_assert(eq(int, claim(store, "a", 5), ARBITER_TAKEN));
    cr_assert(eq(int, files_count(files_path(run_dir, "leader")), 6));
    store->ops->destroy(store);
}

enum { RACERS = 8, RACES = 20 };
static pthread_barrier_t start;
static int n_won[RACES + 1];
static bool races_without_links;

static void *race(void *arg)
{
    struct fsdp_io io = io_posix;
    struct arbiter_store *store = make(&io, run_dir);
    struct leader_record holder;

    if (races_without_links)
        io.link = no_link;
    for (uint64_t term = 1; term <= RACES; term++) {
        const struct leader_record record = record_of(arg, term, 0);

        pthread_barrier_wait(&start);
        if (store->ops->claim(store, &record, &holder, NULL) == ARBITER_DONE)
            __atomic_fetch_add(&n_won[term], 1, __ATOMIC_RELAXED);
    }
    store->ops->destroy(store);
    return NULL;
}

static void race_for_terms(void)
{
    static char names[RACERS][4];
    pthread_t threads[RACERS];

    read_it(one);
    pthread_barrier_init(&start, NULL, RACERS);
    for (int i = 0; i < RACERS; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        cr_assert(pthread_create(&threads[i], NULL, race, names[i]) == 0);
    }
    for (int i = 0; i < RACERS; i++)
        pthread_join(threads[i], NULL);

    for (int term = 1; term <= RACES; term++)
        cr_assert(eq(int, n_won[term], 1), "term %d", term);
}

Test(directory_store, of_many_that_claim_at_once_one_wins)
{
    race_for_terms();
}

Test(directory_store, of_many_that_claim_at_once_without_hard_links_one_wins)
{
    races_without_links = true;
    race_for_terms();
}

/* Calls that fail */

/*
 * One term: claimed if it is not, and a record of it. The claim is TAKEN if an earlier call had its
 * effect.
 */
static enum arbiter_answer lead_a_term(struct arbiter_store *store, const char *who, uint64_t term)
{
    enum arbiter_answer answer = claim(store, who, term);

    if (answer == ARBITER_TAKEN && is(who, term, out.sequence))
        answer = ARBITER_DONE;
    return answer == ARBITER_DONE ? renew(store, who, term, 1) : answer;
}

static void fail_one(struct memory_io *io, int n)
{
    struct arbiter_store *store;
    enum arbiter_answer answer;

    cr_assert(io->base.mkdir(&io->base, "run", 0777) == 0);
    store = make(&io->base, "run");
    io->calls = 0;
    io->fail_at = n;
    fsdp_err_clear(&err);

    answer = read_it(store);
    if (answer == ARBITER_NONE)
        answer = lead_a_term(store, "a", 1);
    io->fail_at = 0;

    cr_assert(answer == ARBITER_DONE || answer == ARBITER_FAILED, "failing call %d: %d", n, answer);
    cr_assert(answer == ARBITER_DONE || err.message[0] != '\0');
    read_it(store);
    cr_assert(eq(int, lead_a_term(store, "a", 1), ARBITER_DONE), "after call %d: %s", n, err.message);
    cr_assert(read_it(store) == ARBITER_DONE && is("a", 1, 1));
    cr_assert(eq(int, claim(store, "b", 1), ARBITER_TAKEN));
    store->ops->destroy(store);
}

static void fail_one_and_cut_the_power(struct memory_io *io, int n)
{
    struct arbiter_store *store;

    cr_assert(io->base.mkdir(&io->base, "run", 0777) == 0);
    cr_assert(io_sync_directory(&io->base, "", NULL) == FSDP_OK);
    store = make(&io->base, "run");
    io->calls = 0;
    io->fail_at = n;
    if (claim(store, "a", 1) == ARBITER_FAILED)
        cr_assert(ne(int, claim(store, "a", 1), ARBITER_FAILED), "after call %d: %s", n, err.message);
    io->fail_at = 0;

    memory_io_crash(io, CRASH_KEEP_SYNCED, 0);

    cr_assert(eq(int, claim(store, "b", 1), ARBITER_TAKEN), "after call %d", n);
    store->ops->destroy(store);
}

Test(directory_store, a_term_that_was_given_at_the_second_try_survives_a_power_cut)
{
    cr_assert(gt(int, memory_io_fail_each(EIO, fail_one_and_cut_the_power), 8));
}

static bool is_claimed(struct memory_io *io, const char *path)
{
    struct io_stat stat;

    return io->base.stat(&io->base, path, &stat) == 0;
}

/* Others may have seen the name of a claim whose contents could not be written. */
static void fail_one_without_links(struct memory_io *io, int n)
{
    struct arbiter_store *store;
    enum arbiter_answer answer;

    io->base.link = no_link;
    fail_one_and_cut_the_power(io, n);
    store = make(&io->base, "run");
    io->calls = 0;
    io->fail_at = n;
    answer = claim(store, "a", 2);
    io->fail_at = 0;

    cr_assert(answer == ARBITER_DONE || answer == ARBITER_FAILED, "failing call %d: %d", n, answer);
    cr_assert(answer == ARBITER_FAILED || is_claimed(io, "run/leader/term-2"));
    answer = is_claimed(io, "run/leader/term-2") ? ARBITER_TAKEN : ARBITER_DONE;
    cr_assert(eq(int, claim(store, "b", 2), answer), "after call %d", n);
    cr_assert(answer == ARBITER_DONE || is("a", 2, 0) || is("", 2, 0));
    cr_assert(eq(int, claim(store, "a", 2), ARBITER_TAKEN), "after call %d", n);
    store->ops->destroy(store);
}

Test(directory_store, without_hard_links_a_claim_that_was_seen_is_never_taken_back)
{
    cr_assert(gt(int, memory_io_fail_each(EIO, fail_one_without_links), 8));
}

/* While the leader of term 3 lives, none can have claimed term 4. */
static void fail_one_of_a_read(struct memory_io *io, int n)
{
    struct arbiter_store *store;
    enum arbiter_answer answer;

    cr_assert(io->base.mkdir(&io->base, "run", 0777) == 0);
    store = make(&io->base, "run");
    claim(store, "a", 3);
    renew(store, "a", 3, 1);
    io->calls = 0;
    io->fail_at = n;

    answer = read_it(store);

    cr_assert(answer == ARBITER_FAILED || (answer == ARBITER_DONE && is("a", 3, 1)), "failing call %d", n);
    store->ops->destroy(store);
}

Test(directory_store, a_call_that_fails_in_a_read_makes_no_term_taken)
{
    cr_assert(gt(int, memory_io_fail_each(EIO, fail_one_of_a_read), 5));
}

Test(directory_store, after_any_call_that_fails_the_same_agent_still_gets_its_term)
{
    cr_assert(gt(int, memory_io_fail_each(EIO, fail_one), 12));
    memory_io_fail_each(ESTALE, fail_one);
}

/* The link is made, and its answer is lost; the client asks again, as NFS does, or does not. */
static int lost_error;

static int lost_link(struct fsdp_io *io, const char *from, const char *to)
{
    (void)io;
    cr_assert(link(from, to) == 0);
    errno = lost_error;
    return -1;
}

Test(directory_store, a_link_whose_answer_is_lost_is_recognised)
{
    struct fsdp_io io = io_posix;
    struct arbiter_store *store = make(&io, run_dir);
    const int errors[] = { EEXIST, EIO };

    read_it(store);
    io.link = lost_link;
    for (uint64_t term = 1; term <= 2; term++) {
        lost_error = errors[term - 1];
        cr_assert(eq(int, claim(store, "a", term), ARBITER_DONE));
        cr_assert(eq(int, claim(other, "b", term), ARBITER_TAKEN));
    }
    store->ops->destroy(store);
}

Test(directory_store, short_and_interrupted_calls_are_repeated)
{
    struct memory_io io;
    struct arbiter_store *store;

    memory_io_init(&io);
    cr_assert(io.base.mkdir(&io.base, "run", 0777) == 0);
    store = make(&io.base, "run");
    io.short_calls = true;

    read_it(store);
    cr_assert(eq(int, lead_a_term(store, "a", 1), ARBITER_DONE), "%s", err.message);

    cr_assert(read_it(store) == ARBITER_DONE && is("a", 1, 1));
    store->ops->destroy(store);
    memory_io_fini(&io);
}

/*
 * The power fails before the nth call of a leader of term 1 that term 2 takes over. What comes up is
 * readable, a term is never given twice, and what was answered is there.
 */
Test(directory_store, a_power_cut_takes_back_nothing_that_was_answered)
{
    const enum memory_crash kinds[] = { CRASH_KEEP_SYNCED, CRASH_KEEP_ALL, CRASH_KEEP_NAMES,
                                        CRASH_KEEP_RANDOM };
    struct memory_io begin;
    struct arbiter_store *store;
    int n_answered = 0;

    memory_io_init(&begin);
    cr_assert(begin.base.mkdir(&begin.base, "run", 0777) == 0);
    cr_assert(io_sync_directory(&begin.base, "", NULL) == FSDP_OK);
    for (int n = 1; n_answered < 5; n++)
        for (uint64_t i = 0; i < 40; i++) {
            struct memory_io io;
            enum arbiter_answer answers[5];
            uint64_t term = 0;

            memory_io_copy(&io, &begin);
            store = make(&io.base, "run");
            io.stop_at = n;
            answers[0] = read_it(store);
            answers[1] = claim(store, "a", 1);
            answers[2] = renew(store, "a", 1, 1);
            answers[3] = claim(store, "b", 2);
            answers[4] = renew(store, "b", 2, 1);
            n_answered = 0;
            while (n_answered < 5 && answers[n_answered] != ARBITER_FAILED)
                n_answered++;
            memory_io_crash(&io, kinds[i % 4], i);

            cr_assert(ne(int, read_it(store), ARBITER_FAILED), "call %d: %s", n, err.message);
            term = out.term;
            cr_assert(n_answered < 2 || claim(store, "c", 1) == ARBITER_TAKEN, "call %d, kind %d", n,
                      (int)(i % 4));
            cr_assert(n_answered < 4 || claim(store, "c", 2) == ARBITER_TAKEN, "call %d", n);
            cr_assert(n_answered < 3 || term >= 1, "call %d", n);
            cr_assert(n_answered < 5 || term == 2, "call %d", n);
            store->ops->destroy(store);
            memory_io_fini(&io);
        }
    memory_io_fini(&begin);
}

Test(directory_store, no_link_of_another_user_is_followed)
{
    char folder[IO_PATH_BYTES], elsewhere[IO_PATH_BYTES];
    struct arbiter_store *store;

    if (geteuid() != 0)
        cr_skip_test("needs root");
    run_dir = files_begin();
    store = make(NULL, run_dir);
    snprintf(folder, sizeof folder, "%s/leader", run_dir);
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", run_dir);
    cr_assert(zero(int, mkdir(elsewhere, 0700)));
    cr_assert(zero(int, symlink("elsewhere", folder)));
    cr_assert(zero(int, lchown(folder, 1, 1)));
    cr_assert(eq(int, read_it(store), ARBITER_FAILED));
    cr_assert(eq(int, claim(store, "a", 1), ARBITER_FAILED));
    cr_assert(zero(int, rmdir(elsewhere)), "it is still empty");
    cr_assert(zero(int, unlink(folder)));
    cr_assert(eq(int, claim(store, "a", 1), ARBITER_DONE), "%s", err.message);
    cr_assert(eq(int, read_it(store), ARBITER_DONE), "%s", err.message);
    store->ops->destroy(store);
    files_end();
}

Test(directory_store, a_run_directory_may_come_later)
{
    char later[IO_PATH_BYTES];
    struct arbiter_store *store;

    run_dir = files_begin();
    snprintf(later, sizeof later, "%s/later", run_dir);
    store = make(NULL, later);
    cr_assert(eq(int, read_it(store), ARBITER_NONE));
    cr_assert(zero(int, mkdir(later, 0700)));
    cr_assert(eq(int, claim(store, "a", 1), ARBITER_DONE), "%s", err.message);
    store->ops->destroy(store);
    files_end();
}
