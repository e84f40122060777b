/*
 * A program on libfsdp, without an agent, that saves when it is told to.
 *
 *   save_alone DIRECTORY < COMMANDS
 *
 * A command is a line: "save STEP" or "load". The answer is a line on stdout: "saved STEP", "loaded STEP", or
 * the words of the error. At the end of the commands it ends with 0. A save stands between two access(2)
 * calls of names that do not exist, so that its calls are found in a trace.
 */
#include <fsdp/fsdp.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct fsdp_value *forward(struct fsdp_module *self, struct fsdp_value *tokens, void *user)
{
    (void)user;
    return fsdp_call(fsdp_module_child(self, "output"),
                     fsdp_embed(fsdp_module_child(self, "tok_embeddings"),
                                fsdp_module_child(self, "pos_embeddings"), tokens));
}

static void obey(const char *command, struct fsdp_model *model, const char *directory)
{
    struct fsdp_checkpoint_state state = { 0 };
    enum fsdp_status status = FSDP_ERR_ARG;
    struct fsdp_err err = { 0 };
    long step;

    if (sscanf(command, "save %ld", &step) == 1) {
        state.step = (uint64_t)step;
        access("/save-alone-begins", F_OK);
        status = fsdp_checkpoint_save(model, NULL, directory, &state, 0, NULL, &err);
        access("/save-alone-ends", F_OK);
        if (status == FSDP_OK)
            printf("saved %ld\n", step);
    } else {
        status = fsdp_checkpoint_load(model, NULL, directory, -1, &state, &err);
        if (status == FSDP_OK)
            printf("loaded %llu\n", (unsigned long long)state.step);
    }
    if (status != FSDP_OK)
        printf("%s: %s\n", fsdp_status_name(status), err.message);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const struct fsdp_model_options options = { .batch = 1, .seq = 4, .seed = 1 };
    struct fsdp_context *context = NULL;
    struct fsdp_module *root = fsdp_module_create(forward, NULL);
    struct fsdp_model *model = NULL;
    struct fsdp_err err = { 0 };
    char command[64];

    if (argc != 2)
        return 2;
    fsdp_embedding(root, "tok_embeddings", 16, 8);
    fsdp_embedding(root, "pos_embeddings", 4, 8);
    fsdp_linear(root, "output", 8, 16, false);
    if (fsdp_fully_shard(root, NULL, &err) != FSDP_OK ||
        fsdp_context_create(&context, NULL, &err) != FSDP_OK ||
        fsdp_model_create(&model, context, root, &options, &err) != FSDP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    while (fgets(command, sizeof command, stdin) != NULL)
        obey(command, model, argv[1]);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    fsdp_context_destroy(context);
    return 0;
}
