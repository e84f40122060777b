#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "agent/daemon/control_proto.h"
#include "shard_runtime/core/version.h"

static char *argv[] = { "./x", "", "a b", NULL };
static char *environment[] = { "A=1", "BYTES=\xff\xfe", NULL };
static const unsigned char redirects[3] = { 0, 3, 1 };
static char *filters[] = { "loss", "", NULL };
static const bool shown[3] = { true, false, true };

static struct control_job whole_job(void)
{
    struct control_job job = { .detach = true, .umask = 027, .ignored = 6, .blocked = (uint64_t)1 << 63 };

    agent_config_init(&job.config);
    job.config.argv = argv;
    job.config.environment = environment;
    job.config.script = 2;
    job.config.directory = "/home/x";
    job.config.job_json = "{}";
    job.config.total_steps = 12345678901;
    job.config.exports = true;
    job.config.n_workers = 3;
    job.config.max_restarts = 5;
    job.config.grace_ms = 1500;
    job.config.secret = "ab\0cd";
    job.config.secret_bytes = 5;
    job.config.run_dir = "/runs/x";
    job.config.run_dir_named = true;
    job.config.run_dir_temporary = true;
    job.config.master_address = "10.0.0.1";
    job.config.master_port = 29500;
    job.config.no_store = true;
    job.config.output.redirects = redirects;
    job.config.output.shown = shown;
    job.config.output.direct = true;
    job.config.output.bar = true;
    job.config.output.prefix_template = "${rank} ";
    job.config.output.stderr_filters = filters;
    job.config.output.file_limit_bytes = (uint64_t)1 << 40;
    job.config.output.n_rotated = 3;
    job.config.n_nodes = 4;
    job.config.min_nodes = 2;
    job.config.node_rank = -1;
    job.config.hosting = AGENT_HOST_NO;
    job.config.join_timeout_ms = 7000;
    job.config.last_call_timeout_ms = 0;
    job.config.numa = AGENT_NUMA_EXCLUSIVE;
    job.config.stop_signals = (uint64_t)1 << SIGTERM;
    job.config.forward_signals = (uint64_t)1 << 63;
    job.config.stop_signals_text = "SIGTERM";
    for (int i = 0; i < CONTROL_N_LIMITS; i++)
        job.limits[i] = i == 3 ? RLIM_INFINITY : (uint64_t)i * 1000;
    CPU_SET(1, &job.cpus);
    return job;
}

Test(control_proto, a_job_comes_out_as_it_went_in)
{
    struct control_job job = whole_job(), back;
    unsigned char *payload;
    size_t n;
    struct fsdp_err err = { 0 };

    cr_assert(control_encode_job(&job, &payload, &n, NULL) == FSDP_OK);
    cr_assert(control_decode_job(&back, payload, n, &err) == FSDP_OK, "%s", err.message);

    for (int i = 0; i < 3; i++)
        cr_assert_str_eq(back.config.argv[i], argv[i]);
    cr_assert_null(back.config.argv[3]);
    cr_assert_str_eq(back.config.environment[1], environment[1]);
    cr_assert_null(back.config.environment[2]);
    cr_assert(back.config.script == 2);
    cr_assert_str_eq(back.config.directory, "/home/x");
    cr_assert_str_eq(back.config.job_json, "{}");
    cr_assert(back.config.exports && back.config.total_steps == 12345678901 && back.config.n_workers == 3);
    cr_assert(back.config.max_restarts == 5 && back.config.grace_ms == 1500);
    cr_assert(back.config.secret_bytes == 5 && memcmp(back.config.secret, "ab\0cd", 5) == 0);
    cr_assert_str_eq(back.config.run_dir, "/runs/x");
    cr_assert(memcmp(back.config.output.redirects, redirects, 3) == 0);
    cr_assert_null(back.config.output.tees);
    cr_assert(!back.config.output.shown[1] && back.config.output.shown[2]);
    cr_assert(back.config.output.direct && !back.config.output.prefix);
    cr_assert(back.config.output.bar && !back.config.output.color);
    cr_assert_str_eq(back.config.output.prefix_template, "${rank} ");
    cr_assert_null(back.config.rendezvous_host);
    cr_assert_null(back.config.output.stdout_filters);
    cr_assert_str_eq(back.config.output.stderr_filters[0], "loss");
    cr_assert_null(back.config.output.stderr_filters[2]);
    cr_assert(back.config.output.file_limit_bytes == (uint64_t)1 << 40 && back.config.output.n_rotated == 3);
    cr_assert(back.config.hosting == AGENT_HOST_NO);
    cr_assert(back.config.n_nodes == 4 && back.config.min_nodes == 2 && back.config.node_rank == -1);
    cr_assert(back.config.join_timeout_ms == 7000 && back.config.last_call_timeout_ms == 0);
    cr_assert(back.config.numa == AGENT_NUMA_EXCLUSIVE);
    cr_assert(back.config.stop_signals == (uint64_t)1 << SIGTERM);
    cr_assert(back.config.forward_signals == (uint64_t)1 << 63);
    cr_assert_str_eq(back.config.stop_signals_text, "SIGTERM");
    cr_assert(back.config.run_dir_named && back.config.run_dir_temporary && back.config.master_port == 29500 && back.config.no_store);
    cr_assert_str_eq(back.config.master_address, "10.0.0.1");
    cr_assert(back.detach && back.umask == 027 && back.ignored == 6 && back.blocked == (uint64_t)1 << 63);
    cr_assert(memcmp(back.limits, job.limits, sizeof job.limits) == 0);
    cr_assert(CPU_EQUAL(&back.cpus, &job.cpus));
    cr_assert(back.config.stdio[1] == 1 && back.config.stdio[2] == 2);
    control_job_free(&back);
    free(payload);
}

Test(control_proto, a_request_cut_anywhere_is_refused)
{
    struct control_job job = whole_job(), back;
    unsigned char *payload;
    size_t n;

    cr_assert(control_encode_job(&job, &payload, &n, NULL) == FSDP_OK);
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
    free(payload);
}

Test(control_proto, no_flipped_bit_harms)
{
    struct control_job job = whole_job(), back;
    unsigned char *payload;
    size_t n, n_refused = 0;

    cr_assert(control_encode_job(&job, &payload, &n, NULL) == FSDP_OK);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        payload[bit / 8] ^= (unsigned char)(1 << bit % 8);
        if (control_decode_job(&back, payload, n, NULL) == FSDP_OK) {
            cr_assert(back.config.n_workers >= 1 && back.config.n_workers <= CONTROL_MAX_WORKERS);
            cr_assert(back.config.argv[0] != NULL && back.config.directory[0] == '/');
            control_job_free(&back);
        } else {
            n_refused++;
        }
        payload[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    cr_assert(n_refused > n, "%zu of %zu bits", n_refused, 8 * n);
    free(payload);
}

Test(control_proto, another_build_is_told_apart)
{
    struct control_job job = whole_job(), back;
    unsigned char *payload;
    struct fsdp_err err = { 0 };
    size_t n;

    cr_assert(control_encode_job(&job, &payload, &n, NULL) == FSDP_OK);
    payload[16] ^= 1; /* the first letter of the version, behind a flag and its length */

    cr_assert(control_decode_job(&back, payload, n, &err) == FSDP_ERR_MISMATCH);
    cr_assert_not_null(strstr(err.message, version_number()));
    free(payload);
}

Test(control_proto, what_is_missing_or_too_large_is_not_sent)
{
    struct control_job job = whole_job();
    unsigned char *payload;
    char *big = malloc(CONTROL_MAX_BYTES + 1);
    size_t n;

    job.config.directory = NULL;
    cr_assert(control_encode_job(&job, &payload, &n, NULL) == FSDP_ERR_ARG);
    job.config.directory = "/";
    memset(big, 'x', CONTROL_MAX_BYTES);
    big[CONTROL_MAX_BYTES] = '\0';
    job.config.job_json = big;
    cr_assert(control_encode_job(&job, &payload, &n, NULL) == FSDP_ERR_ARG);
    cr_assert_null(payload);
    free(big);
}

Test(control_proto, words_lose_what_a_terminal_would_obey)
{
    unsigned char payload[4 + CONTROL_WORDS_BYTES];
    char words[CONTROL_WORDS_BYTES + 1];
    uint32_t number;
    size_t n = control_encode_words(payload, sizeof payload, 78, "no\nway\033[2J");

    cr_assert(control_decode_words(payload, n, &number, words, sizeof words));
    cr_assert(number == 78);
    cr_assert_str_eq(words, "no way [2J");
    cr_assert(!control_decode_words(payload, 3, &number, words, sizeof words));
    cr_assert(!control_decode_number(payload, 5, &number));
}

Test(control_proto, every_signal_that_a_process_can_take_passes)
{
    int n = 0;

    for (uint32_t number = 0; number < 100; number++)
        n += control_signal_allowed(number);

    cr_assert(n == 60);
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
