#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "agent/daemon/control_proto.h"
#include "shard_runtime/core/version.h"

static char *argv[] = { "./x", "", "a b", NULL };
static char *environment[] = { "A=1", "BYTES=\xff\xfe", NULL };

static struct control_job whole_job(void)
{
    struct control_job whole = {
        .head = { .detach = 1, .umask = 027, .ignored = 6, .blocked = (uint64_t)1 << 63 },
        .argv = argv,
        .environment = environment,
        .directory = "/home/x"
    };

    for (int i = 0; i < RLIM_NLIMITS; i++)
        whole.head.limits[i] = i == 3 ? RLIM_INFINITY : (uint64_t)i * 1000;
    CPU_SET(1, &whole.head.cpus);
    return whole;
}

static struct control_job job, back;
static unsigned char *payload; /* the whole request */
static size_t n;
static struct fsdp_err err;

static void encode(void)
{
    job = whole_job();
    cr_assert(control_encode_job(&job, &payload, &n, NULL) == FSDP_OK);
}

static void free_all(void)
{
    control_job_free(&back);
    free(payload);
}

TestSuite(control_proto, .init = encode, .fini = free_all);

Test(control_proto, a_job_comes_out_as_it_went_in)
{
    cr_assert(control_decode_job(&back, payload, n, &err) == FSDP_OK, "%s", err.message);

    cr_assert(memcmp(&back.head, &job.head, sizeof job.head) == 0);
    cr_assert_str_eq(back.directory, "/home/x");
    for (int i = 0; i < 3; i++)
        cr_assert_str_eq(back.argv[i], argv[i]);
    for (int i = 0; i < 2; i++)
        cr_assert_str_eq(back.environment[i], environment[i]);
    cr_assert(back.argv[3] == NULL && back.environment[2] == NULL);
}

Test(control_proto, a_request_cut_anywhere_is_refused)
{
    for (size_t cut = 0; cut < n; cut++) {
        unsigned char *part = malloc(cut + 1); /* its end is watched by the sanitizer */

        memcpy(part, payload, cut);
        cr_assert(control_decode_job(&back, part, cut, NULL) == FSDP_ERR_FORMAT, "cut at %zu", cut);
        cr_assert_null(back.owned);
        free(part);
    }
    payload = realloc(payload, n + 1);
    payload[n] = 0;
    cr_assert(control_decode_job(&back, payload, n + 1, NULL) == FSDP_ERR_FORMAT, "something follows");
}

Test(control_proto, another_build_is_told_apart)
{
    payload[0] ^= 1; /* the first letter of the version */

    cr_assert(control_decode_job(&back, payload, n, &err) == FSDP_ERR_MISMATCH);
    cr_assert_not_null(strstr(err.message, version_number()));
}

Test(control_proto, what_is_too_large_is_not_sent)
{
    char *big = malloc(CONTROL_MAX_BYTES + 1), *variables[] = { big, NULL };
    unsigned char *none;

    memset(big, 'x', CONTROL_MAX_BYTES);
    big[CONTROL_MAX_BYTES] = '\0';
    job.environment = variables;

    cr_assert(control_encode_job(&job, &none, &n, NULL) == FSDP_ERR_ARG);
    cr_assert_null(none);
    free(big);
}

Test(control_proto, words_lose_what_a_terminal_would_obey)
{
    unsigned char packet[4 + CONTROL_WORDS_BYTES];
    char words[CONTROL_WORDS_BYTES + 1];
    uint32_t number;
    const size_t size = control_encode_words(packet, sizeof packet, 78, "no\nway\033[2J");

    cr_assert(control_decode_words(packet, size, &number, words, sizeof words));
    cr_assert(number == 78);
    cr_assert_str_eq(words, "no way [2J");
    cr_assert(!control_decode_words(packet, 3, &number, words, sizeof words));
    cr_assert(!control_decode_number(packet, 5, &number));
}

Test(control_proto, every_signal_that_a_process_can_take_passes)
{
    int n_allowed = 0;

    for (uint32_t number = 0; number < 100; number++)
        n_allowed += control_signal_allowed(number);

    cr_assert(n_allowed == 60);
    cr_assert(control_signal_allowed(SIGTERM) && !control_signal_allowed(SIGKILL) &&
              !control_signal_allowed(SIGSTOP));
}

Test(control_proto, the_default_socket_follows_the_session)
{
    char path[64];

    cr_assert(control_default_socket(path, sizeof path, "/run/user/7", 7));
    cr_assert_str_eq(path, "/run/user/7/fsdp/agent.sock");
    cr_assert(control_default_socket(path, sizeof path, NULL, 7));
    cr_assert_str_eq(path, "/tmp/fsdp-7/agent.sock");
    cr_assert(!control_default_socket(path, 10, NULL, 7));
}

Test(control_proto, places_of_jobs_come_out_as_they_went_in)
{
    static unsigned char list[CONTROL_JOBS_BYTES];
    const struct control_place first = { 7, "/run/user/7", "" }, second = { 70000, "", "/tmp/\n\xff" };
    struct control_place place;
    size_t n_list = 0, at = 0;

    cr_assert(control_put_place(list, &n_list, &first) && control_put_place(list, &n_list, &second));

    cr_assert_eq(control_take_place(list, n_list, &at, &place), 1);
    cr_assert(place.pid == 7);
    cr_assert_str_eq(place.runtime_dir, "/run/user/7");
    cr_assert_str_eq(place.temporary, "");
    cr_assert_eq(control_take_place(list, n_list, &at, &place), 1);
    cr_assert(place.pid == 70000);
    cr_assert_str_eq(place.runtime_dir, "");
    cr_assert_str_eq(place.temporary, "/tmp/\n\xff");
    cr_assert_eq(control_take_place(list, n_list, &at, &place), 0);
}

Test(control_proto, a_list_of_jobs_that_is_cut_or_has_no_process_is_refused)
{
    static unsigned char list[CONTROL_JOBS_BYTES];
    static char path[CONTROL_PATH_BYTES + 1];
    struct control_place place = { 7, "/run", "/tmp" };
    size_t n_list = 0, at = 0;

    cr_assert(control_put_place(list, &n_list, &place));
    for (size_t cut = 1; cut < n_list; cut++) {
        unsigned char *exact = malloc(cut); /* of that size: a sanitizer sees what is read after it */

        memcpy(exact, list, cut);
        at = 0;
        cr_expect_eq(control_take_place(exact, cut, &at, &place), -1, "cut to %zu", cut);
        free(exact);
    }
    at = 0;
    memset(list, 0, 4);
    cr_assert_eq(control_take_place(list, n_list, &at, &place), -1);
    at = 0;
    memset(list, 0xff, 4);
    cr_assert_eq(control_take_place(list, n_list, &at, &place), -1);

    memset(path, 'x', CONTROL_PATH_BYTES);
    place = (struct control_place){ 7, path, "" };
    cr_assert(!control_put_place(list, &n_list, &place));
    path[CONTROL_PATH_BYTES - 1] = '\0';
    for (n_list = 0; control_put_place(list, &n_list, &place);)
        cr_assert(n_list <= CONTROL_JOBS_BYTES);
    cr_assert(n_list + CONTROL_PATH_BYTES + 5 > CONTROL_JOBS_BYTES);
}
