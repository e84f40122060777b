/* A checkpoint that PyTorch 2.15 wrote (tests/fuzz/seeds/distcp/pytorch): w is float32 [3, 2] = 0 .. 5. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "shard_runtime/shardfile/distcp.h"
#include "shard_runtime/shardfile/weights.h"
#include "tests/unit/shardfile/files.h"

static char folder[IO_PATH_BYTES];
static unsigned char *metadata, *data;
static size_t metadata_bytes, data_bytes;
static struct contents contents;
static struct fsdp_err err;

static void write_both(size_t n_metadata, size_t n_data)
{
    files_write(files_path(folder, ".metadata"), metadata, n_metadata);
    files_write(files_path(folder, "__0_0.distcp"), data, n_data);
}

static void begin(void)
{
    size_t size;
    unsigned char *seed = files_read(SOURCE_DIR "/tests/fuzz/seeds/distcp/pytorch", &size);

    metadata_bytes = seed[0] | (size_t)seed[1] << 8;
    data_bytes = size - 2 - metadata_bytes;
    metadata = malloc(metadata_bytes);
    data = malloc(data_bytes);
    memcpy(metadata, seed + 2, metadata_bytes);
    memcpy(data, seed + 2 + metadata_bytes, data_bytes);
    free(seed);
    snprintf(folder, sizeof folder, "%s", files_begin());
    write_both(metadata_bytes, data_bytes);
}

static void end(void)
{
    contents_free(&contents);
    free(metadata);
    free(data);
    files_end();
}
TestSuite(distcp, .init = begin, .fini = end, .timeout = 120);

static enum fsdp_status list(void)
{
    char directory[IO_PATH_BYTES];

    contents_free(&contents);
    return weights_list(&io_posix, folder, &contents, directory, &err);
}

/* The six elements, read where the list says; false if they are others. */
static bool has_elements(void)
{
    for (int i = 0; i < 6; i++) {
        float value;

        memcpy(&value, data + contents.pieces[0].offset + 4 * i, sizeof value);
        if (value != (float)i)
            return false;
    }
    return true;
}

Test(distcp, pytorchs_own_is_listed_and_what_is_no_tensor_left_out)
{
    cr_assert(distcp_is(&io_posix, folder));
    cr_assert(list() == FSDP_OK, "%s", err.message);

    cr_assert(eq(sz, contents.manifest.n_tensors, 1));
    cr_expect(eq(str, (char *)contents.manifest.tensors[0].name, "model.w"));
    cr_expect(contents.manifest.tensors[0].dtype == FSDP_F32 && contents.manifest.tensors[0].n_dims == 2);
    cr_expect(contents.manifest.tensors[0].shape[0] == 3 && contents.manifest.tensors[0].shape[1] == 2);
    cr_assert(eq(sz, contents.n_pieces, 1));
    cr_expect(has_elements());
}

Test(distcp, cut_short_anywhere_it_is_refused)
{
    for (size_t n = 0; n < metadata_bytes; n++) {
        write_both(n, data_bytes);
        cr_assert(list() != FSDP_OK, "%zu bytes of metadata", n);
    }
    /* What follows the tensor's archive is no tensor's. */
    for (size_t n = 0; n < data_bytes / 2; n++) {
        write_both(metadata_bytes, n);
        cr_assert(list() != FSDP_OK, "%zu bytes of data", n);
    }
}

/*
 * Any changed byte is refused, or the list is still inside the file: no name is called, no byte outside read.
 */
Test(distcp, changed_anywhere_it_names_nothing_outside_itself)
{
    size_t n_refused = 0;

    for (size_t at = 0; at < metadata_bytes + data_bytes; at++) {
        unsigned char *const byte = at < metadata_bytes ? &metadata[at] : &data[at - metadata_bytes];

        *byte ^= 0x21;
        write_both(metadata_bytes, data_bytes);
        if (list() != FSDP_OK)
            n_refused++;
        else
            for (size_t p = 0; p < contents.n_pieces; p++)
                cr_assert(contents.pieces[p].offset +
                                  box_elems(&contents.pieces[p].box) *
                                      fsdp_dtype_size(contents.manifest.tensors[0].dtype) <=
                              data_bytes,
                          "byte %zu", at);
        *byte ^= 0x21;
    }
    cr_assert(gt(sz, n_refused, metadata_bytes / 2), "%zu", n_refused);
}

Test(distcp, a_file_in_another_directory_is_refused)
{
    for (size_t i = 0; i + 12 < metadata_bytes; i++)
        if (memcmp(metadata + i, "__0_0.distcp", 12) == 0)
            memcpy(metadata + i, "../../x.diso", 12);
    write_both(metadata_bytes, data_bytes);

    cr_expect(eq(int, list(), FSDP_ERR_FORMAT));
    cr_expect_not_null(strstr(err.message, "name of a file"), "%s", err.message);
}
