/*
 * What a model is inside: where its parameters stand, their memory on this rank, and up to two programs that
 * run on them, training and evaluation, each with an arena of its own.
 */
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H

#include <fsdp/model.h>

#include "shard_runtime/engine/place.h"
#include "shard_runtime/nn/nn.h"
#include "shard_runtime/plan/plan.h"
#include "shard_runtime/plan/policies.h"
#include "shard_runtime/shard/layout.h"
#include "shard_runtime/shard/param_group.h"

/** The ranks that units are sharded over, and the replicas of that: those of a mesh that fsdp_fully_shard() was given. */
struct model_mesh {
    const struct fsdp_device_mesh *mesh; /* NULL: all of the world shard */
    int W, R;                            /* ranks that shard, replicas of that */
    int shard_rank, replica_rank;        /* this one's place among either */
    struct fsdp_comm *shards, *replicas; /* the groups of the two; borrowed from mesh or context */
    struct fsdp_comm
        *own_reduces; /* for reduce-scatters where a unit asked for one; NULL: `shards` does them */
    double squares;   /* the sum of this rank's squared gradients in the last step */
};

/** The ranks of a mesh that gather slices of 1 / k together. */
struct model_part {
    int k;
    const struct model_mesh *mesh;
    struct fsdp_comm *comm;
};

/** Where memory is not the host's: what goes in and comes out, in device and in page-locked memory. Empty elsewhere. */
struct program_io {
    void *inputs; /* device: of each forward the input, then the targets from targets_at */
    size_t input_bytes, targets_at, inputs_bytes; /* the last of one forward */
    float *logits;                                /* host: of an evaluation; NULL until they are asked for */
    size_t logits_bytes;
};

/** A recording with its plan, prepared products, arena and events. */
struct program {
    struct fsdp_context *context;
    struct graph graph;
    struct plan plan;
    struct nn_kernels kernels;
    char *arena;
    size_t arena_bytes;
    struct device_event **events; /* of the entries that record one */
    struct overlap *overlap;      /* runs what communicates; NULL: inline */
    const void **whole_grads;     /* room for those of one group, while it is packed */
    struct fsdp_batch *batches;   /* of each forward, where operations read it; until the last backward */
    int next_call, next_entry;    /* where it stands: 0 at the beginning */
    uint64_t hash;                /* plan_hash() */
    bool compared; /* a whole step of it ran in which all ranks had this plan, and compared their collectives */
    bool calls_known; /* so the call that runs need not compare them again: on all ranks */
    struct program_io io;
    /* What a run adds to. Not the caller's own: after a run that failed a device may come to it late. */
    double loss_sum;
    uint64_t n_targets;
    void (*observe)(void *observer,
                    int entry); /* before each entry that takes part, and n_entries behind the last;
                                                    NULL: nobody looks */
    void *observer;
};

/** The shards of those groups that have them in one place, one group's after the other's. */
struct model_memory {
    float *parameters,
        *gradients; /* gradients NULL without training; on the device the beginning of its arena */
    size_t parameter_bytes, gradient_bytes;
    size_t reduced_elems; /* of gradients, without those of ignored parameters, which come last */
};

/** The initial values of one parameter. */
struct initial_values {
    uint64_t key; /* of its random numbers */
    bool pending; /* nothing has filled the parameter: they are still to be drawn */
};

/** What has become of a group of the layout in this step. */
struct model_group_state {
    bool final;   /* its gradients, in a backward that runs: its hook was called */
    bool updated; /* by fsdp_optimizer_step_group() */
};

struct fsdp_model {
    struct fsdp_context *context;
    struct fsdp_model *next; /* of the context's models */
    struct fsdp_module *root;
    struct fsdp_model_options options;
    struct model_mesh *meshes; /* the root's first; of the same ranks all of them */
    int n_meshes;
    int data_ranks;     /* that compute on samples of their own: those of each mesh */
    int T, tensor_rank; /* the tensor group: ranks that each have a part of split modules; 1 and 0 without */
    const struct fsdp_device_mesh *tensor_mesh;
    struct fsdp_comm *tensor;              /* borrowed from the mesh */
    struct fsdp_unshard_handle *unsharded; /* of each group: gathered by hand between steps */
    struct model_part *parts;              /* one for each k among the groups of a mesh */
    int n_parts;
    int *ranks;                /* (world size) room to list the ranks of a group that is opened */
    struct graph layout_graph; /* of `layout`, which only its groups and parameters are used of */
    struct plan layout;
    struct param_group *groups;
    struct rounding_draws draws; /* of the groups that round stochastically: the step is the optimizer's */
    struct model_memory memory[N_PLACES];
    struct initial_values *initial; /* of each parameter of the layout */
    int n_pending;                  /* of these: still to be drawn */
    size_t n_drawn;                 /* elements of initial values that this rank has written */
    double loss_scale; /* gradients count as multiplied by it, to be the mean over a step of several calls */
    double grad_scale; /* and by this one, of clipping, where they are reduced */
    bool more_to_come; /* the next call is not the step's last */
    bool same_plan;    /* on all ranks, in each call of this step so far */
    double own_loss_sum;     /* of the last loss: this rank's part of the sum over all ranks */
    bool completed;          /* hooks on final gradients were called in this step, */
    bool spoiled;            /* by some rank, and it failed */
    bool hooks_talk;         /* hooks on reduced gradients were seen to call collectives of their own */
    uint64_t n_steps_begun;  /* those that failed included */
    bool has_gradients;      /* of a step that is whole and had targets, until the next one begins */
    bool used;               /* fsdp_optimizer_step() has taken these */
    int nonfinite_parameter; /* the first whose gradient is not finite on some rank; -1: none */
    size_t n_micro_done;     /* of a step whose last call is yet to come */
    uint64_t step_targets;   /* and their targets */
    bool loss_is_nonfinite;  /* that of a forward of this step is not finite */
    struct model_group_state *in_step; /* of each group */
    bool torn; /* a step that failed or was dropped updated groups, and no checkpoint was loaded since */
    int64_t loaded_step; /* the checkpoint it was loaded from, or -1 */
    struct program training, evaluation;
    size_t eval_batch, eval_seq; /* of the second; 0: there is none */
    struct policies planned;     /* what the two follow */
    bool replanned;              /* the call that runs made them anew */
};

/** Where calls of a program take their data and leave their results. */
struct program_input {
    const struct fsdp_batch *batches; /* of the forwards among the calls; targets NULL: no loss */
    int n_calls;                      /* to be run, from where the program stands */
    bool fails;                       /* this rank failed before: it only takes part in the collectives */
    const struct fsdp_err *why;       /* with what, where it has words for it */
    size_t micro, n_micro; /* the number of the program's first micro-step, and how many the step has */
    float scale;           /* of the loss's gradient: W / count of targets */
    double *loss_sum;      /* added to */
    uint64_t *n_targets;   /* added to */
};

/** FSDP_ERR_ARG: a number or an enumerator that makes no sense, named. */
enum fsdp_status model_check_options(const struct fsdp_model_options *options, struct fsdp_err *err);

/** Record, prepare and plan a program; nothing is allocated on the device. To be released as below. */
enum fsdp_status program_plan(struct program *program, const struct fsdp_model *model, size_t batch,
                              bool training, size_t seq, struct fsdp_err *err);

/**
 * Record, plan and allocate a program for the model's parameters. *program is to be released also after a
 * failure.
 */
enum fsdp_status program_create(struct program *program, struct fsdp_model *model, size_t batch,
                                bool training, size_t seq, struct fsdp_err *err);
void program_destroy(struct program *program);

/** The bytes of a batch on the device, where it needs room for one; fills in the sizes of program->io. */
size_t program_io_measure(struct program *program);
/** Room for a batch, where the device needs it. */
enum fsdp_status program_io_create(struct program *program, struct fsdp_err *err);
void program_io_destroy(struct program *program);
/** Queue the way of forward number `forward`'s batch to the device; its input and targets (NULL: none) become what
 * operations read. */
void program_io_send(struct program *program, int forward, struct fsdp_batch *batch);
/** The logits that a run left at `on_device`, in host memory until the next call; waits for them. */
enum fsdp_status program_io_logits(struct program *program, const float *on_device, const float **logits,
                                   struct fsdp_err *err);

/** Run the entries of the next calls; on return all streams are done. Behind the last call, and after a failure, the
 * program stands at its beginning. */
enum fsdp_status program_run(struct program *program, struct fsdp_model *model,
                             const struct program_input *input, struct fsdp_err *err);
/** All calls of a program. */
int program_calls(const struct program *program);
/** Back to its beginning. */
void program_rewind(struct program *program);

/** Does a function of the user's run within the entry? What that calls is not in the plan. */
bool program_runs_users_function(const struct program *program, const struct plan_entry *entry);

/** The arena of training is there, which begins with the gradient shards of the device (plan/gradients.c): they are zero, and the
 * groups know where they are. */
void model_place_gradients(struct fsdp_model *model);
/** It is about to go. */
void model_lose_gradients(struct fsdp_model *model);

/** Where the shards of a group of the layout are. */
enum shard_place model_place(const struct fsdp_model *model, int group);
/** Was it made for training, with something to train? */
bool model_has_gradients(const struct fsdp_model *model);

/** Where every parameter stands: what plans of training and evaluation have in common. */
enum fsdp_status model_make_layout(struct fsdp_model *model, struct fsdp_err *err);
void model_drop_layout(struct fsdp_model *model);

/**
 * replan.c: have the programs follow what units are told now. `within` and the rest as in policies_compare(). Not collective:
 * the ranks agree on the outcome afterwards, and where one failed all of them call model_plan_again().
 *   FSDP_ERR_ARG    it is too late for what was set, for this step or for ever; the programs are as before
 *   FSDP_ERR_NOMEM  no room for another arena: there are no programs, until a later call has made them
 */
enum fsdp_status model_follow_setters(struct fsdp_model *model, bool within, bool is_last, bool single,
                                      struct fsdp_err *err);
/** The next call is to try again, on this rank as on that which failed. */
void model_plan_again(struct fsdp_model *model);
/** What units are told now. */
struct policies model_policies(const struct fsdp_model *model);

/** Find the meshes that units were sharded over and modules split over. */
enum fsdp_status model_join_mesh(struct fsdp_model *model, struct fsdp_err *err);

/** Room for the next one, which then fails only if a group cannot be opened: that breaks the groups of the model. */
enum fsdp_status model_prepare_comms(struct fsdp_model *model, struct fsdp_err *err);
/** Open the groups of ranks that the layout needs in addition to the mesh's: own_reduces and parts. Collective. */
enum fsdp_status model_open_comms(struct fsdp_model *model, struct fsdp_err *err);
void model_close_comms(struct fsdp_model *model);
/** The ranks of `mesh` that gather slices of 1 / k. */
struct fsdp_comm *model_part(const struct fsdp_model *model, const struct model_mesh *mesh, int k);
/** The mesh of a group of the layout. */
const struct model_mesh *model_mesh(const struct fsdp_model *model, int group);
/** plan_options.ranks_of; `user` is the model. */
void model_ranks_of(const void *user, const struct fsdp_module *unit, int *W, int *R);
/** The group of a tensor mesh of this model; NULL where mesh is. */
struct fsdp_comm *model_tensor_comm(const struct fsdp_model *model, const struct fsdp_device_mesh *mesh);

/** The ranks, in order, that `mesh` shards over together with this one, in ranks (mesh->W). */
void model_list_shards(const struct fsdp_model *model, const struct model_mesh *mesh, int *ranks);
/** Does a unit ask for reductions in a group of their own? */
bool model_wants_separate_reduces(const struct fsdp_model *model);
/** What a group of `n` ascending ranks keeps on each of them. */
typedef size_t (*model_group_bytes_fn)(const int *ranks, int n, int ranks_per_host);
/** The sum of it over the process groups of the model that this rank is in. */
size_t model_group_bytes(const struct fsdp_model *model, model_group_bytes_fn bytes_of, int ranks_per_host);
/** What they keep to move data through host memory, once they were used: of this rank alone. */
size_t model_staging_bytes(const struct fsdp_model *model, int ranks_per_host);
/** The segments for it that this rank shares with others of its host: what the rank maps, and all of the host, each once. */
size_t model_shared_bytes(const struct fsdp_model *model, int ranks_per_host);
size_t model_node_shared_bytes(const struct fsdp_model *model, int ranks_per_host);
/** Fill in the sizes of model->memory, for the layout that is there. */
enum fsdp_status model_measure_memory(struct fsdp_model *model, struct fsdp_err *err);

/** All-reduce over the ranks that compute on samples of their own, or over these and the tensor group: all that share the
 * model. Collective over them; nothing happens where there is one alone. */
enum fsdp_status model_reduce_over_data(const struct fsdp_model *model, void *buffer, size_t n_elems,
                                        enum fsdp_dtype dtype, enum fsdp_reduce_op op, struct fsdp_err *err);
enum fsdp_status model_reduce_over_all(const struct fsdp_model *model, void *buffer, size_t n_elems,
                                       enum fsdp_dtype dtype, enum fsdp_reduce_op op, struct fsdp_err *err);

/** Copy `buffer` (size_bytes) of the model's lowest rank to all ranks that share the model. Collective over them. (A tensor group
 * occurs only in a model of all ranks of the world.) */
enum fsdp_status model_broadcast(const struct fsdp_model *model, void *buffer, size_t size_bytes,
                                 struct fsdp_err *err);

/** Leave all groups that the model uses, the world's too, and say why, which is in `err`: nobody waits for this rank any longer
 * than until it reads that. Where it was another's leaving, that rank's number and words come into `err` as far as they can be
 * had. The thread that calls collectives, between two of them. */
void model_break(struct fsdp_model *model, enum fsdp_status status, struct fsdp_err *err);
/** Lend the second thread the groups that it gathers and reduces in, or take them back: comm_lend(). */
void model_lend(struct fsdp_model *model, bool lent);
/** Did a collective fail in a group that the model uses? The thread that calls these. */
bool model_is_broken(const struct fsdp_model *model);

/**
 * agree.c: context_agree() among all ranks that share the model, which also adds up `sums` (n, at most MODEL_MAX_SUMS) over the
 * ranks that compute on samples of their own. If a group of the model is broken, a rank that failed returns `own` at once.
 *
 * Every collective entry point calls it, in one of two ways:
 *   - before its first collective, once everything was checked and allocated; after it, only a broken group can fail;
 *   - after its last collective, if a rank that fails takes part in the collectives all the same (a step, an evaluation).
 */
enum { MODEL_MAX_SUMS = 5 };
enum fsdp_status model_agree(struct fsdp_model *model, double *sums, size_t n, enum fsdp_status own,
                             struct fsdp_err *err);
/** The same, and *flag becomes whether any rank's was set. */
enum fsdp_status model_agree_with_flag(struct fsdp_model *model, double *sums, size_t n, bool *flag,
                                       enum fsdp_status own, struct fsdp_err *err);
/**
 * context_agree() among the ranks that are about to make a model of `root`. Only the tree says which ranks these are:
 *   - the ranks of the root's mesh, if that and the tensor group do not make up the whole world;
 *   - all ranks of the world otherwise, also if `root` is NULL or has no mesh of this context.
 */
enum fsdp_status tree_agree(const struct fsdp_context *context, const struct fsdp_module *root,
                            enum fsdp_status own, struct fsdp_err *err);

/** The input that the model's options and these sizes describe; to train on, or to evaluate. */
struct graph_input model_input(const struct fsdp_model *model, size_t batch, size_t seq, bool training);

/** Forwards before a backward: at least 1. */
size_t model_forwards(const struct fsdp_model *model);

/** The options of plans of this model. */
struct plan_options model_plan_options(const struct fsdp_model *model, bool training);

/** Does a second thread run this model's collectives? By its options; else where they have something to wait for. */
bool model_overlaps(const struct fsdp_model *model);

/**
 * initial.c: initial values are drawn when something first reads a value, so that parameters which a checkpoint, a file or
 * the program fills before that cost nothing.
 *
 * model_plan_initial() notes that every parameter is to get its initial values. It writes none.
 *   FSDP_ERR_NOMEM  no room for the notes
 */
enum fsdp_status model_plan_initial(struct fsdp_model *model, struct fsdp_err *err);
/**
 * Draw the initial values of this rank's rows of every parameter that nothing has filled. Each function that reads values, or
 * shows where they are, calls it first. Not collective. Returns at once where nothing is left to draw.
 *   FSDP_ERR_DEVICE  a copy to the device failed
 */
enum fsdp_status model_draw(struct fsdp_model *model, struct fsdp_err *err);
/** This rank's rows of parameter `index` have their values: nothing will be drawn for it. */
void model_is_filled(struct fsdp_model *model, int index);

/** fsdp_model_state() without drawing: for those who fill what is listed. */
void model_list_state(struct fsdp_model *model, struct fsdp_tensor_shard *out);

/** The runs of this rank's shard of parameter `index`, in the shard and in the whole. */
struct layout_walk model_walk(const struct fsdp_model *model, int index);

/** Of parameter `index`: over how many ranks it is cut, and this one's place among them. */
int model_cut(const struct fsdp_model *model, int index, int *rank);

/** The shard of parameter `index` on this rank: where it begins in memory, and how many elements are its own. NULL
 * and 0: a gradient that there is none of. */
float *model_shard(const struct fsdp_model *model, enum fsdp_which which, int index, size_t *n_elems);

/** By what a gradient of `group` counts as multiplied. */
double model_gradient_scale(const struct fsdp_model *model, int group);

/* gradients.c */

/** FSDP_ERR_ARG: there are no gradients of a whole step. The same on every rank. */
enum fsdp_status gradients_check(const struct fsdp_model *model, struct fsdp_err *err);
/** The sum of |x|^norm_type over this rank's share of the gradients of `mesh`; with INFINITY the largest |x|.
 * Of gradients that several ranks hold alike, one rank has them in its share. */
double gradients_sum_powers(const struct fsdp_model *model, const struct model_mesh *mesh, double norm_type);
/** Fill in `squares` of all meshes. *finite: are all gradients that this rank holds numbers? FSDP_ERR_DEVICE:
 * not known. */
enum fsdp_status gradients_measure(struct fsdp_model *model, bool *finite, struct fsdp_err *err);
/** The first parameter of `group` (-1: of all) whose gradient is not finite on this rank; -1: none. */
int gradients_find_nonfinite(const struct fsdp_model *model, int group);
/** model->nonfinite_parameter becomes the first that any rank finds. Collective over all that share the
 * model. */
enum fsdp_status gradients_agree_on_nonfinite(struct fsdp_model *model, struct fsdp_err *err);
/** FSDP_ERR_NOT_FINITE, with the name of parameter `index`. */
enum fsdp_status gradients_fail_nonfinite(const struct fsdp_model *model, int index, struct fsdp_err *err);

/* in_backward.c: an optimizer that updates groups inside backward. */

/** Does a unit have a hook on final gradients? */
bool model_updates_in_backward(const struct fsdp_model *model);
/** A step failed with `status`, which is returned: the groups that any rank updated in it are added to the
 * words, and the model counts as torn. Collective over all that share the model, unless a group of theirs is
 * broken. */
enum fsdp_status model_tell_updates(struct fsdp_model *model, enum fsdp_status status, struct fsdp_err *err);
/** The last step is dropped, or another begins: if it updated groups and fsdp_optimizer_step() did not end it, the model
 * counts as torn. */
void model_note_dropped(struct fsdp_model *model);
/** FSDP_ERR_ARG: some parameters have an update that others do not have. The same on every rank. */
enum fsdp_status model_check_not_torn(const struct fsdp_model *model, struct fsdp_err *err);

/** Number of parameter `name` of `n_elems` elements; -1: there is none, and `err` says so (FSDP_ERR_ARG). */
int model_find_parameter(const struct fsdp_model *model, const char *name, size_t n_elems,
                         struct fsdp_err *err);

/** Memory to gather parameters in, one after another: of each place as much as the largest one needs. Zero-initialised. */
struct gather_room {
    size_t size_bytes[N_PLACES];
    float *memory[N_PLACES];
};
/** Count parameter `index` in, before the memory is made. */
void gather_room_need(struct gather_room *room, const struct fsdp_model *model, int index);
/** To be freed also after a failure. */
enum fsdp_status gather_room_make(struct gather_room *room, struct fsdp_model *model, struct fsdp_err *err);
void gather_room_free(struct gather_room *room, struct fsdp_model *model);
/** The whole of parameter `index`, or of its gradient, into `out`; collective. Only a broken group or device can fail it. */
enum fsdp_status model_gather(struct fsdp_model *model, int index, enum fsdp_which which,
                              const struct gather_room *room, float *out, struct fsdp_err *err);

struct checkpoint_tensor;

/** A shard as checkpoint/ takes it. */
void model_checkpoint_tensor(const struct fsdp_tensor_shard *shard, struct checkpoint_tensor *tensor);

/** What fsdp_model_state() tells of parameter `index`, but for the data: its optimizer's state has the same. */
void model_tensor_shard(const struct fsdp_model *model, int index, struct fsdp_tensor_shard *out);

/** What model_shard() says, without memory: does it exist, and how many elements. */
bool model_shard_elems(const struct fsdp_model *model, enum fsdp_which which, int index, size_t *n_elems);

#endif
