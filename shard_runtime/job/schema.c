#include "shard_runtime/job/schema.h"

#include <stdio.h>
#include <string.h>

#include "shard_runtime/job/job.h"

#define AT(field) offsetof(struct job, field)
#define STEPS_MAX 99999999.0         /* the name of a checkpoint's directory has eight digits */
#define EXACT_MAX 9007199254740991.0 /* 2^53 - 1: exact in every JSON reader */

const struct job_section job_sections[] = {
    { "run", "where a run keeps what it writes, and what it runs on" },
    { "launch", "how many processes, and what happens when one dies (the command line wins)" },
    { "data", "what the model is trained on" },
    { "model", "the model that is trained" },
    { "train", "how many steps, of what size" },
    { "optimizer", "how the weights are updated" },
    { "parallel", "how the model is sharded" },
    { "checkpoint", "what is saved and resumed" },
};
const size_t job_sections_size = sizeof job_sections / sizeof *job_sections;

#define NO_FLOAT16                                                                                           \
    .never = "float16", .never_why = "gradients of that type vanish without a loss scaler, and there is "    \
                                     "none"

/* clang-format off */
const struct job_key job_schema[] = {
    { "run", "name", JOB_TEXT, AT(run.name), .is_name = true, .fallback = "run", .example = "quickstart",
      .help = "The run's directory below run.dir. Default: the job file's name without .yaml." },
    { "run", "dir", JOB_TEXT, AT(run.dir), .fallback = "runs",
      .help = "The directory in which run directories are made, relative to the working directory." },
    { "run", "seed", JOB_COUNT, AT(run.seed), 0, EXACT_MAX, .fallback = "1234",
      .help = "Initial weights, order of samples and dropout follow from it." },
    { "run", "log_every", JOB_COUNT, AT(run.log_every), 1, STEPS_MAX, .fallback = "10",
      .help = "Steps from one line of metrics.jsonl to the next." },
    { "run", "device", JOB_WORD, AT(run.device), .choices = "auto|cpu|cuda", .fallback = "auto",
      .example = "cpu",
      .help = "The device that computes. auto: the GPUs if every rank has one of its own, else the cpu." },
    { "run", "collectives", JOB_WORD, AT(run.collectives), .choices = "auto|cpu|nccl",
      .fallback = "auto", .example = "cpu",
      .help = "The way data moves between ranks. nccl: between GPUs only. cpu: with cuda, through host "
              "memory. auto: nccl if every rank has a GPU of its own." },

    { "launch", "nproc_per_node", JOB_COUNT, AT(launch.nproc_per_node), 1, 4096, .fallback = "1",
      .example = "2", .help = "Ranks on each node." },
    { "launch", "nnodes", JOB_COUNT, AT(launch.nnodes), 1, 65536, .fallback = "1", .example = "2",
      .help = "Nodes of the job." },
    { "launch", "max_restarts", JOB_COUNT, AT(launch.max_restarts), 0, 1e6, .fallback = "3",
      .help = "How often a failed world is formed again before the job fails." },
    { "launch", "restart_window_s", JOB_COUNT, AT(launch.restart_window_s), 0, 1e6, .fallback = "0",
      .example = "3600",
      .help = "Only the restarts of so many last seconds count, and max_restarts is at most 240. 0: those "
              "of the whole run." },
    { "launch", "threads", JOB_COUNT, AT(launch.threads), 1, 1024, .zero = "auto", .fallback = "auto",
      .example = "2", .help = "Compute threads of a rank; auto: the node's CPUs divided by its ranks." },
    { "launch", "hang_timeout_s", JOB_NUMBER, AT(launch.hang_timeout_s), 0, 1e6, .fallback = "600.0",
      .help = "A rank without progress for this long, from the start of its process to its end, is reported "
              "and the world restarted. Shorter bounds are learned from the run. 0: never." },

    { "data", "path", JOB_TEXT, AT(data.path), .is_path = true, .example = "data/bible.txt",
      .help = "The file to read: relative to the job file that names it, or to the working directory if "
              "--set names it." },
    { "data", "tokenizer", JOB_WORD, AT(data.tokenizer), .choices = "byte", .later = "*", .fallback = "byte",
      .help = "How the file becomes tokens. byte: each byte is a token, so any file can be used." },
    { "data", "order", JOB_CHOICE, AT(data.order), .choices = "shuffled|sequential", .fallback = "shuffled",
      .help = "Order of the samples: a new permutation in every epoch, or the order of the file." },
    { "data", "validation", JOB_NUMBER, AT(data.validation), 0, 1, .high_open = true, .later = "*",
      .fallback = "0.0", .help = "Share of the samples that are not trained on but measured." },

    { "model", "kind", JOB_WORD, AT(model.kind), .choices = "transformer|gpt2", .later = "llama",
      .fallback = "transformer",
      .help = "The model that the keys below describe: the tutorial's, or GPT-2 with Hugging Face's names "
              "and a tied head." },
    { "model", "preset", JOB_CHOICE, AT(model.preset), .choices = "null|124m|355m|774m|1558m",
      .fallback = "null",
      .help = "For kind gpt2: layers, dim, heads, vocab 50257 and seq 1024 of a published size. Keys that "
              "are given win." },
    { "model", "layers", JOB_COUNT, AT(model.layers), 1, 10000, .fallback = "10",
      .help = "Transformer blocks." },
    { "model", "dim", JOB_COUNT, AT(model.dim), 1, 1048576, .fallback = "512",
      .help = "Width of the residual stream; model.heads must divide it." },
    { "model", "heads", JOB_COUNT, AT(model.heads), 1, 65536, .fallback = "8",
      .help = "Attention heads of a block." },
    { "model", "vocab", JOB_COUNT, AT(model.vocab), 1, 16777216, .fallback = "1024",
      .help = "Rows of the embedding and of the output; at least 256 for data.tokenizer: byte." },
    { "model", "seq", JOB_COUNT, AT(model.seq), 1, 1048576, .fallback = "64",
      .help = "Tokens of a sample, and positions that the model knows." },
    { "model", "dropout", JOB_NUMBER, AT(model.dropout), 0, 1, .high_open = true, .fallback = "0.0",
      .example = "0.1", .help = "Share of activations dropped on embeddings, attention and both residuals." },
    { "model", "causal", JOB_BOOL, AT(model.causal), .fallback = "true",
      .help = "A token sees only those before it." },
    { "model", "tied", JOB_BOOL, AT(model.tied), .fallback = "false",
      .help = "The output shares the weight of tok_embeddings; both are in one group. For gpt2 always "
              "true." },
    { "model", "norm", JOB_CHOICE, AT(model.norm), .choices = "layernorm|rmsnorm", .fallback = "layernorm",
      .example = "rmsnorm",
      .help = "The normalisation before attention, before feed_forward and at the end. rmsnorm has no bias "
              "and subtracts no mean. For kind transformer, with eps 1e-5." },
    { "model", "weights", JOB_TEXT, AT(model.weights), .is_path = true, .zero = "null", .fallback = "null",
      .help = "Initial weights: a .safetensors file, a directory of them, their index.json, or a step "
              "directory. null: random ones. The path is resolved as data.path is." },
    { "model", "weights_strict", JOB_BOOL, AT(model.weights_strict), .fallback = "true",
      .help = "true: model.weights must hold every parameter and nothing else. false: missing parameters "
              "begin with random values." },
    { "model", "frozen", JOB_NAMES, AT(model.frozen), .zero = "null", .fallback = "null",
      .example = "[\"tok_embeddings.*\", \"layers.0.*\"]",
      .help = "Patterns of parameters that do not learn: they have no gradient and no optimizer state. A "
              "star matches dots too." },

    { "train", "steps", JOB_COUNT, AT(train.steps), 0, STEPS_MAX, .fallback = "200",
      .help = "Updates of the weights. 0: initialise, save step 0 and end." },
    { "train", "batch", JOB_COUNT, AT(train.batch), 1, 1048576, .fallback = "8",
      .help = "Sequences of a rank in a micro-step; with train.global_batch, their maximum." },
    { "train", "matmul_precision", JOB_CHOICE, AT(train.matmul_precision), .choices = "highest|high",
      .fallback = "highest", .example = "high",
      .help = "high: a product of float32 may be computed as three of bfloat16 (about 1e-5 off) if that is "
              "faster, which is on CPUs with AMX. Elsewhere it changes nothing, and the first line says "
              "so." },
    { "train", "grad_accumulation", JOB_COUNT, AT(train.grad_accumulation), 1, 1048576, .fallback = "1",
      .help = "Micro-steps of a step." },
    { "train", "global_batch", JOB_COUNT, AT(train.global_batch), 1, 1073741824, .zero = "null",
      .fallback = "null", .example = "64",
      .help = "Sequences of a step over all ranks, in place of grad_accumulation. The number of ranks must "
              "divide it." },
    { "train", "clip_norm", JOB_NUMBER, AT(train.clip_norm), 0, 1e30, .fallback = "1.0",
      .help = "Largest global norm of the gradient. Larger gradients are scaled down. 0: no clipping." },
    { "train", "clip_norm_type", JOB_CHOICE, AT(train.clip_norm_type), 1, 3, .choices = "inf",
      .is_number_too = true, .fallback = "2",
      .help = "The order of the norm that clip_norm bounds and that grad_norm in metrics.jsonl shows." },

    { "optimizer", "kind", JOB_CHOICE, AT(optimizer.kind), .choices = "adamw|sgd", .fallback = "adamw",
      .help = "The update rule." },
    { "optimizer", "lr", JOB_NUMBER, AT(optimizer.lr), 0, 1e6, .fallback = "1.0e-3",
      .help = "Learning rate, the highest of the schedule." },
    { "optimizer", "betas", JOB_PAIR, AT(optimizer.betas), 0, 1, .high_open = true, .fallback = "[0.9, 0.95]",
      .help = "AdamW: how slowly the mean and the mean square of the gradient change." },
    { "optimizer", "eps", JOB_NUMBER, AT(optimizer.eps), 0, 1, .fallback = "1.0e-8",
      .help = "AdamW: added to the square root in the denominator." },
    { "optimizer", "weight_decay", JOB_NUMBER, AT(optimizer.weight_decay), 0, 1e6, .fallback = "0.1",
      .help = "AdamW: decoupled decay, multiplied by the learning rate. SGD: added to the gradient." },
    { "optimizer", "momentum", JOB_NUMBER, AT(optimizer.momentum), 0, 1, .high_open = true, .fallback = "0.0",
      .example = "0.9", .help = "SGD: how slowly the direction changes. 0: plain descent." },
    { "optimizer", "decay", JOB_CHOICE, AT(optimizer.decay), .choices = "all|matrices", .fallback = "all",
      .example = "matrices",
      .help = "The parameters that weight_decay applies to: all, or those of two dimensions." },
    { "optimizer", "schedule", JOB_CHOICE, AT(optimizer.schedule), .choices = "constant|linear|cosine",
      .fallback = "constant", .example = "cosine",
      .help = "After the warm-up the learning rate stays, or falls to 0 at train.steps." },
    { "optimizer", "warmup_steps", JOB_COUNT, AT(optimizer.warmup_steps), 0, STEPS_MAX, .fallback = "0",
      .example = "20", .help = "Steps in which the learning rate rises to lr." },
    { "optimizer", "groups", JOB_RULES, AT(optimizer.groups), .zero = "null", .fallback = "null",
      .example = "[{parameters: [\"*.bias\", \"*norm.*\"], weight_decay: 0.0}, "
                 "{parameters: \"tok_embeddings.*\", lr: 1.0e-4}]",
      .help = "lr and weight_decay of parameters by name. The first rule that matches a parameter holds. "
              "null: all alike." },
    { "optimizer", "in_backward", JOB_BOOL, AT(optimizer.in_backward), .fallback = "false",
      .help = "Update each group during backward, as soon as its gradients are there. Needs train.clip_norm: "
              "0." },

    { "parallel", "replicate", JOB_COUNT, AT(parallel.replicate), 1, 65536, .fallback = "1",
      .help = "Copies of the sharded model (hybrid sharding, HSDP); must divide the number of ranks." },
    { "parallel", "tensor", JOB_COUNT, AT(parallel.tensor), 1, 65536, .fallback = "1",
      .help = "Ranks that split each block's attention and feed_forward between them (tensor parallelism). "
              "They are neighbours and train on the same samples. Must divide the ranks, model.heads and "
              "four times model.dim." },
    { "parallel", "all_reduce", JOB_CHOICE, AT(parallel.all_reduce), .choices = "every|last",
      .fallback = "every",
      .help = "With gradient_sync every: sum over the copies in every micro-step, or in the last one." },
    { "parallel", "reshard_after_forward", JOB_CHOICE, AT(parallel.reshard_after_forward), 1, 65536,
      .choices = "auto|true|false", .is_number_too = true, .fallback = "auto",
      .help = "Free gathered weights after forward. auto: in all groups but the root's. A number k: keep 1/k "
              "of them. k divides the ranks that shard; a run that resumes with other ranks lowers it until "
              "it does." },
    { "parallel", "groups", JOB_RULES, AT(parallel.groups), .zero = "null", .fallback = "null",
      .example = "[{modules: layers.*}, {modules: [tok_embeddings, output], reshard_after_forward: false}]",
      .help = "Which modules form groups, with settings of their own. null: each block is a group. The rest "
              "belongs to the root's group." },
    { "parallel", "placement", JOB_RULES, AT(parallel.placement), .zero = "null", .fallback = "null",
      .example = "[{parameters: \"*.w2.weight\", dim: 1}]",
      .help = "Parameters that are cut along another dimension than 0." },
    { "parallel", "ignored", JOB_NAMES, AT(parallel.ignored), .zero = "null", .fallback = "null",
      .help = "Patterns of parameters that every rank keeps whole. They must be in model.frozen too, because "
              "their gradients are not summed." },
    { "parallel", "param_dtype", JOB_CHOICE, AT(parallel.param_dtype), .choices = "float32|bfloat16",
      NO_FLOAT16, .fallback = "float32", .example = "bfloat16",
      .help = "Type in which weights are gathered and computed with. Their shards stay float32." },
    { "parallel", "reduce_dtype", JOB_CHOICE, AT(parallel.reduce_dtype), .choices = "float32|bfloat16",
      NO_FLOAT16, .fallback = "float32", .help = "Type in which gradients are reduced." },
    { "parallel", "output_dtype", JOB_CHOICE, AT(parallel.output_dtype), .choices = "null|float32|bfloat16",
      NO_FLOAT16, .fallback = "null",
      .help = "Type that a group's output is cast to. null: no cast. Logits are always float32, except on a "
              "GPU that trains with param_dtype: bfloat16; there they are bfloat16." },
    { "parallel", "float8_gather", JOB_BOOL, AT(parallel.float8_gather), .fallback = "false",
      .help = "Gather the weights of linear layers in float8 e4m3, one byte an element and one scale a "
              "tensor. All others stay param_dtype." },
    { "parallel", "stochastic_rounding", JOB_BOOL, AT(parallel.stochastic_rounding), .fallback = "false",
      .help = "Round weights to bfloat16 stochastically when they are gathered, so that the mean over steps "
              "is right. Needs param_dtype: bfloat16 and no float8_gather." },
    { "parallel", "cast_forward_inputs", JOB_BOOL, AT(parallel.cast_forward_inputs), .fallback = "true",
      .help = "Cast a group's input to param_dtype." },
    { "parallel", "offload", JOB_CHOICE, AT(parallel.offload), .choices = "none|cpu|nvme", .fallback = "none",
      .help = "cpu: shards, gradients and optimizer state are in host memory, as they always are on the cpu "
              "device. nvme: like cpu, but optimizer state is in a file, with a window of it in memory." },
    { "parallel", "offload_dir", JOB_TEXT, AT(parallel.offload_dir), .is_path = true, .zero = "null",
      .fallback = "null",
      .help = "The directory for the files of offload: nvme. They have no names and vanish with the job. "
              "null: offload in the run directory. The path is resolved as data.path is." },
    { "parallel", "recompute", JOB_CHOICE, AT(parallel.recompute), .choices = "cheap|none",
      .fallback = "cheap", .example = "none",
      .help = "cheap: backward computes the results of GELU and LayerNorm again, from inputs that are kept "
              "in any case. none: they are kept. Changes no bit." },
    { "parallel", "activation_checkpoint", JOB_CHOICE, AT(parallel.activation_checkpoint),
      .choices = "none|full|selective", .fallback = "none", .example = "full",
      .help = "What backward computes again instead of keeping it: all of a block, or all of it but products "
              "and attention." },
    { "parallel", "activation_checkpoint_every", JOB_COUNT, AT(parallel.activation_checkpoint_every), 1,
      10000,
      .fallback = "1", .example = "2", .help = "Only the first of every so many blocks. 1: all blocks." },
    { "parallel", "forward_prefetch", JOB_COUNT, AT(parallel.forward_prefetch), 1, 1024, .zero = "auto",
      .fallback = "auto", .example = "2",
      .help = "How many groups ahead forward gathers. More gives more overlap and needs more memory. auto: "
              "the next one." },
    { "parallel", "backward_prefetch", JOB_COUNT, AT(parallel.backward_prefetch), 1, 1024, .zero = "auto",
      .fallback = "auto", .example = "2", .help = "The same in backward, towards the first group." },
    { "parallel", "reduce_scatter_max_input_buffers", JOB_COUNT,
      AT(parallel.reduce_scatter_max_input_buffers), 1, 64, .fallback = "1", .example = "2",
      .help = "Buffers of packed gradients that may wait for their reduction. More give more overlap and "
              "need more memory." },
    { "parallel", "separate_reduce_scatter_group", JOB_BOOL, AT(parallel.separate_reduce_scatter_group),
      .fallback = "false",
      .help = "A separate communicator for reductions, so that they do not wait for gathers." },
    { "parallel", "gradient_divide_factor", JOB_NUMBER, AT(parallel.gradient_divide_factor), 0, 1e30,
      .fallback = "0.0", .help = "Divisor of the sum of gradients over the ranks. 0: the number of ranks." },
    { "parallel", "force_sum_reduction", JOB_BOOL, AT(parallel.force_sum_reduction), .fallback = "false",
      .help = "Sum in the collectives and divide afterwards, instead of averaging in them." },
    { "parallel", "overlap", JOB_CHOICE, AT(parallel.overlap), .choices = "auto|true|false",
      .fallback = "auto",
      .help = "A second thread gathers and reduces while the first one computes. auto: between nodes, or if "
              "a CPU is free for it." },
    { "parallel", "gradient_sync", JOB_CHOICE, AT(parallel.gradient_sync), .choices = "last|every",
      .fallback = "last",
      .help = "Reduce gradients after the last micro-step of a step, or after every one." },
    { "parallel", "reshard_after_backward", JOB_BOOL, AT(parallel.reshard_after_backward), .fallback = "true",
      .help = "Free gathered weights after the backward of every micro-step." },

    { "checkpoint", "every", JOB_COUNT, AT(checkpoint.every), 0, STEPS_MAX, .fallback = "50",
      .help = "Steps from one checkpoint to the next; the last step is saved too. 0: never." },
    { "checkpoint", "dir", JOB_TEXT, AT(checkpoint.dir), .is_path = true, .is_place = true, .zero = "null",
      .fallback = "null",
      .help = "The directory of the checkpoints, which no other run may use; or s3://BUCKET/PREFIX. null: "
              "checkpoints in the run directory. The path is resolved as data.path is." },
    { "checkpoint", "keep", JOB_COUNT, AT(checkpoint.keep), 0, STEPS_MAX, .fallback = "3",
      .help = "How many of the newest checkpoints are kept. 0: all." },
    { "checkpoint", "async", JOB_BOOL, AT(checkpoint.async), .fallback = "true",
      .help = "A step waits only until its state is copied into memory; the agent writes it to the disk. "
              "Needs memory for two copies of the state. false: training waits for the disk." },
    { "checkpoint", "snapshot_every", JOB_COUNT, AT(checkpoint.snapshot_every), 0, STEPS_MAX, .fallback = "0",
      .help = "Steps from one copy in memory to the next. After the death of a rank, all ranks resume from "
              "the newest one. 0: only the copies that checkpoint.async makes." },
    { "checkpoint", "replicas", JOB_COUNT, AT(checkpoint.replicas), 0, 1, .fallback = "0",
      .help = "1: each copy in memory is copied once more, to the memory of another node. After the loss of "
              "a node, the one that takes its place resumes from there. Needs twice the memory of the "
              "copies." },
    { "checkpoint", "resume", JOB_CHOICE, AT(checkpoint.resume), .choices = "auto|never", .fallback = "auto",
      .help = "auto: resume from the newest checkpoint that verifies. never: refuse a run directory that has "
              "a checkpoint." },
    { "checkpoint", "export", JOB_CHOICE, AT(checkpoint.exports), .choices = "none|huggingface",
      .fallback = "none", .example = "huggingface",
      .help = "huggingface: when the steps are done, write the whole model for other programs into "
              "export/step-N of the run directory, which transformers opens." },
    { "checkpoint", "data", JOB_CHOICE, AT(checkpoint.data), .choices = "check|ignore", .fallback = "check",
      .help = "check: a run resumes only with the data that it began with. ignore: with the data that "
              "data.path names now." },
};
/* clang-format on */
const size_t job_schema_size = sizeof job_schema / sizeof *job_schema;
_Static_assert(sizeof job_schema / sizeof *job_schema <= JOB_MAX_KEYS, "JOB_MAX_KEYS is too small");

const struct job_key *job_key_find(const char *section, const char *name)
{
    for (size_t i = 0; i < job_schema_size; i++)
        if (strcmp(job_schema[i].section, section) == 0 && strcmp(job_schema[i].name, name) == 0)
            return &job_schema[i];
    return NULL;
}

const struct job_key *job_key_find_path(const char *path)
{
    char known[JOB_KEY_PATH_BYTES];

    for (size_t i = 0; i < job_schema_size; i++)
        if (strcmp(job_key_path(&job_schema[i], known), path) == 0)
            return &job_schema[i];
    return NULL;
}

size_t job_key_index(const struct job_key *key)
{
    return (size_t)(key - job_schema);
}

const char *job_key_path(const struct job_key *key, char out[JOB_KEY_PATH_BYTES])
{
    snprintf(out, JOB_KEY_PATH_BYTES, "%s.%s", key->section, key->name);
    return out;
}

const char *job_key_example(const struct job_key *key)
{
    return key->example != NULL ? key->example : key->fallback;
}

const struct job_section *job_section_find(const char *name)
{
    for (size_t i = 0; i < job_sections_size; i++)
        if (strcmp(job_sections[i].name, name) == 0)
            return &job_sections[i];
    return NULL;
}

const struct job_section *job_section_begun(size_t index)
{
    const char *name = job_schema[index].section;

    return index > 0 && strcmp(job_schema[index - 1].section, name) == 0 ? NULL : job_section_find(name);
}

bool job_key_is_list(const struct job_key *key)
{
    return key->type == JOB_NAMES || key->type == JOB_RULES;
}

bool job_key_decides(const struct job_key *key)
{
    static const char sections[] = "data|model|train|optimizer", except[] = "train.steps|model.preset";
    static const char others[] = "run.seed|parallel.groups|parallel.param_dtype|parallel.reduce_dtype|"
                                 "parallel.output_dtype|parallel.cast_forward_inputs|parallel.float8_gather|"
                                 "parallel.stochastic_rounding|parallel.gradient_divide_factor";
    char path[JOB_KEY_PATH_BYTES];

    job_key_path(key, path);
    return job_list_index(others, path) >= 0 ||
           (job_list_index(sections, key->section) >= 0 && job_list_index(except, path) < 0);
}

bool job_list_word(const char *list, int index, char out[JOB_KEY_PATH_BYTES])
{
    for (; list != NULL && *list != '\0'; index--) {
        size_t length = strcspn(list, "|");

        if (index == 0) {
            snprintf(out, JOB_KEY_PATH_BYTES, "%.*s", (int)length, list);
            return true;
        }
        list += length + (list[length] == '|');
    }
    return false;
}

int job_list_index(const char *list, const char *word)
{
    char known[JOB_KEY_PATH_BYTES];

    for (int i = 0; job_list_word(list, i, known); i++)
        if (strcmp(known, word) == 0)
            return i;
    return -1;
}

void job_list_spell(const char *list, const char *last, char *out, size_t size)
{
    char word[JOB_KEY_PATH_BYTES], next[JOB_KEY_PATH_BYTES];
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; job_list_word(list, i, word); i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s",
                                 i == 0                             ? ""
                                 : job_list_word(list, i + 1, next) ? ", "
                                                                    : last,
                                 strcmp(word, "<int>") == 0 ? "a number" : word);
}
