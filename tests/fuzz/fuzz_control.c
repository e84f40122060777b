/*
 * What a client may send to fsdp-agent, under libFuzzer. The first byte chooses one of three inputs:
 *   - the bytes as a stream of frames, and as an agent's list of jobs
 *   - the bytes after the head of a request, with the build of this program
 *   - a whole request with the bytes laid over it
 * A request that is taken keeps the promises of agent/daemon/control_proto.h, and encodes to the same bytes
 * again.
 */
#include "agent/daemon/control_proto.h"
#include "agent/wire/frame.h"
#include "tests/fuzz/fuzz.h"

static unsigned char *whole_request(size_t *n)
{
    char program[] = "./x", argument[] = "y", variable[] = "A=1";
    char *argv[] = { program, argument, NULL }, *environment[] = { variable, NULL };
    struct control_job job = {
        .head = { .umask = 022 }, .argv = argv, .environment = environment, .directory = "/"
    };
    unsigned char *payload;

    never(control_encode_job(&job, &payload, n, NULL) != FSDP_OK);
    return payload;
}

static void check_request(const unsigned char *payload, size_t n)
{
    struct control_job job;
    struct fsdp_err err = { 0 };
    unsigned char *again;
    size_t n_again;

    if (!taken(control_decode_job(&job, payload, n, &err), &err)) {
        never(job.owned != NULL);
        return;
    }
    never(job.argv[0] == NULL || job.directory[0] != '/');
    never(control_encode_job(&job, &again, &n_again, NULL) != FSDP_OK || n_again != n ||
          memcmp(again, payload, n) != 0);
    free(again);
    control_job_free(&job);
}

/* The agent of a list of jobs may be another user's. */
static void check_places(const unsigned char *payload, size_t n)
{
    unsigned char *again = malloc(CONTROL_JOBS_BYTES);
    struct control_place place;
    size_t at = 0, n_again = 0;
    int more;

    while ((more = control_take_place(payload, n, &at, &place)) > 0) {
        never(place.pid == 0 || strlen(place.runtime_dir) >= CONTROL_PATH_BYTES ||
              strlen(place.temporary) >= CONTROL_PATH_BYTES);
        if (n <= CONTROL_JOBS_BYTES)
            never(!control_put_place(again, &n_again, &place));
    }
    never(more == 0 && n <= CONTROL_JOBS_BYTES && (n_again != n || memcmp(again, payload, n) != 0));
    free(again);
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
    size_t n, n_input;
    unsigned char *whole, *input;

    if (size == 0)
        return 0;
    if (data[0] % 3 == 0) {
        check_frames(data + 1, size - 1);
        check_places(data + 1, size - 1);
        return 0;
    }
    whole = whole_request(&n);
    n_input = data[0] % 3 == 1 ? sizeof(struct control_head) + size - 1 : n;
    input = malloc(n_input);
    memcpy(input, whole, data[0] % 3 == 1 ? sizeof(struct control_head) : n);
    if (data[0] % 3 == 1)
        memcpy(input + sizeof(struct control_head), data + 1, size - 1);
    else if (size > 3)
        for (size_t i = 3, at = (size_t)data[1] | (size_t)data[2] << 8; i < size; i++)
            input[(at + i - 3) % n] ^= data[i];
    check_request(input, n_input);
    free(input);
    free(whole);
    return 0;
}
