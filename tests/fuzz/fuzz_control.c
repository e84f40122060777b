/*
 * What a client may send to fsdp-agent, under libFuzzer. The first byte chooses: the bytes as they are, the bytes
 * behind the version that every request begins with, or a whole request with the bytes laid over it. What is taken
 * keeps the promises of agent/daemon/control_proto.h and is written to the same request again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/daemon/control_proto.h"
#include "agent/wire/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned char *whole_request(size_t *n)
{
    char program[] = "./x", argument[] = "y", variable[] = "A=1";
    char *argv[] = { program, argument, NULL }, *environment[] = { variable, NULL };
    static const unsigned char tees[2] = { 3, 1 };
    struct control_job job = { .umask = 022 };
    unsigned char *payload;

    agent_config_init(&job.config);
    job.config.argv = argv;
    job.config.environment = environment;
    job.config.directory = "/";
    job.config.run_dir = "/r";
    job.config.n_workers = 2;
    job.config.output.tees = tees;
    if (control_encode_job(&job, &payload, n, NULL) != FSDP_OK)
        abort();
    return payload;
}

static void check_request(const unsigned char *payload, size_t n)
{
    struct control_job job;
    struct fsdp_err err = { 0 };
    unsigned char *again;
    size_t n_again;

    if (control_decode_job(&job, payload, n, &err) != FSDP_OK) {
        if (err.message[0] == '\0' || job.owned != NULL)
            abort();
        return;
    }
    if (job.config.argv[0] == NULL || job.config.n_workers < 1 || job.config.directory[0] != '/')
        abort();
    if (control_encode_job(&job, &again, &n_again, NULL) != FSDP_OK || n_again != n ||
        memcmp(again, payload, n) != 0)
        abort();
    free(again);
    control_job_free(&job);
}

/* The bytes as a stream of frames, as the daemon reads them. */
static void check_frames(const uint8_t *data, size_t size)
{
    struct frame_parser parser;
    struct frame frame;
    char words[CONTROL_WORDS_BYTES + 1];
    uint32_t number;

    frame_parser_init(&parser, CONTROL_MAX_BYTES);
    if (frame_parser_feed(&parser, data, size, NULL) == FSDP_OK)
        while (frame_parser_next(&parser, &frame, NULL) == FSDP_OK && frame.payload != NULL) {
            check_request(frame.payload, frame.size);
            control_decode_number(frame.payload, frame.size, &number);
            control_decode_words(frame.payload, frame.size, &number, words, sizeof words);
        }
    frame_parser_fini(&parser);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n, n_version = 0, n_input;
    unsigned char *whole, *input;

    if (size == 0)
        return 0;
    if (data[0] % 3 == 0) {
        check_frames(data + 1, size - 1);
        return 0;
    }
    whole = whole_request(&n);
    for (int text = 0; text < 2; text++) /* a flag, a length, the text, a zero */
        n_version += 8 + 8 + whole[n_version + 8] + 1;
    n_input = data[0] % 3 == 1 ? n_version + size - 1 : n;
    input = malloc(n_input);
    memcpy(input, whole, data[0] % 3 == 1 ? n_version : n);
    if (data[0] % 3 == 1)
        memcpy(input + n_version, data + 1, size - 1);
    else if (size > 3)
        for (size_t i = 3, at = (size_t)data[1] | (size_t)data[2] << 8; i < size; i++)
            input[(at + i - 3) % n] ^= data[i];
    check_request(input, n_input);
    free(input);
    free(whole);
    return 0;
}
