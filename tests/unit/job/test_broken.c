/*
 * Broken job files, each with the exact lines it must give.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "shard_runtime/job/tree.h"
#include "tests/unit/job/resolve_text.h"

#define DATA "data: {path: d}\n"

/* clang-format off */
static const struct broken {
    const char *name, *text, *lines;
} broken[] = {
    { "unknown key", DATA "model:\n  dimm: 4\n",
      "t.yaml:3:3: model.dimm: is no key of a job file; did you mean dim?" },
    { "unknown section", DATA "modle: {dim: 4}\n",
      "t.yaml:2:1: modle: is no section of a job file; did you mean model?" },
    { "nothing near", DATA "model: {zebra: 4}\n",
      "t.yaml:2:9: model.zebra: is no key of a job file" },
    { "key of another section", DATA "train: {dim: 64}\n",
      "t.yaml:2:9: train.dim: is no key of a job file; did you mean model.dim?" },
    { "key without its section", DATA "steps: 4\n",
      "t.yaml:2:1: steps: is no section of a job file; did you mean train.steps?" },
    { "swapped letters", DATA "train: {setps: 4}\n",
      "t.yaml:2:9: train.setps: is no key of a job file; did you mean steps?" },
    { "key twice", DATA "train:\n  steps: 4\n  batch: 2\n  steps: 5\n",
      "t.yaml:5:3: train.steps: is there twice (first in line 3)" },
    { "section twice", DATA "train: {steps: 4}\nrun: {seed: 1}\ntrain: {steps: 5}\n",
      "t.yaml:4:1: train: is there twice (first in line 2)" },
    { "text for a count", DATA "train: {steps: many}\n",
      "t.yaml:2:16: train.steps: must be a whole number from 0 to 99999999, not many" },
    { "quoted count", DATA "train: {steps: \"4\"}\n",
      "t.yaml:2:16: train.steps: must be a whole number from 0 to 99999999, not \"4\"" },
    { "fraction for a count", DATA "train: {steps: 1.5}\n",
      "t.yaml:2:16: train.steps: must be a whole number from 0 to 99999999, not 1.5" },
    { "exponent for a count", DATA "train: {steps: 1e3}\n",
      "t.yaml:2:16: train.steps: must be a whole number from 0 to 99999999, not 1e3" },
    { "negative count", DATA "train: {steps: -1}\n",
      "t.yaml:2:16: train.steps: must be a whole number from 0 to 99999999, not -1" },
    { "below the range", DATA "model: {layers: 0}\n",
      "t.yaml:2:17: model.layers: must be a whole number from 1 to 10000, not 0" },
    { "above the range", DATA "launch: {nproc_per_node: 5000}\n",
      "t.yaml:2:26: launch.nproc_per_node: must be a whole number from 1 to 4096, not 5000" },
    { "beyond 64 bits", DATA "run: {seed: 99999999999999999999999}\n",
      "t.yaml:2:13: run.seed: must be a whole number from 0 to 9007199254740991, not "
      "99999999999999999999999" },
    { "underscore in a number", DATA "train: {steps: 1_000}\n",
      "t.yaml:2:16: train.steps: must be a whole number from 0 to 99999999, not 1_000" },
    { "octal", DATA "train: {steps: 010}\n",
      "t.yaml:2:16: train.steps: must be a whole number from 0 to 99999999, not 010" },
    { "hexadecimal", DATA "train: {steps: 0x10}\n",
      "t.yaml:2:16: train.steps: must be a whole number from 0 to 99999999, not 0x10" },
    { "infinite", DATA "optimizer: {lr: .inf}\n",
      "t.yaml:2:17: optimizer.lr: must be a number from 0 to 1000000, not .inf" },
    { "overflowing", DATA "optimizer: {lr: 1e999}\n",
      "t.yaml:2:17: optimizer.lr: must be a number from 0 to 1000000, not 1e999" },
    { "text for a number", DATA "optimizer: {lr: fast}\n",
      "t.yaml:2:17: optimizer.lr: must be a number from 0 to 1000000, not fast" },
    { "open end of a range", DATA "model: {dropout: 1.0}\n",
      "t.yaml:2:18: model.dropout: must be a number from 0 to below 1, not 1.0" },
    { "yes for true", DATA "model: {causal: yes}\n",
      "t.yaml:2:17: model.causal: must be true or false, not yes" },
    { "quoted true", DATA "parallel: {reshard_after_forward: \"true\"}\n",
      "t.yaml:2:35: parallel.reshard_after_forward: must be auto, true or false, or a whole number from 1 "
      "to 65536, not \"true\"" },
    { "null for a count", DATA "train: {steps: null}\n",
      "t.yaml:2:16: train.steps: must be a whole number from 0 to 99999999, not null" },
    { "empty value", DATA "train:\n  steps:\n  batch: 4\n",
      "t.yaml:3:9: train.steps: must be a whole number from 0 to 99999999, not null" },
    { "number for text", "data: {path: 12}\n",
      "t.yaml:1:14: data.path: must be text (in quotes if it looks like something else), not 12" },
    { "empty text", "data: {path: \"\"}\n",
      "t.yaml:1:14: data.path: must not be empty" },
    { "slash in a name", DATA "run: {name: a/b}\n",
      "t.yaml:2:13: run.name: must be the name of a directory, without / and not starting with . or -, not "
      "a/b" },
    { "control character in text", DATA "run: {dir: \"a\\tb\"}\n",
      "t.yaml:2:12: run.dir: must be text without control characters, not a?b" },
    { "zero byte in text", DATA "run: {dir: \"a\\0b\"}\n",
      "t.yaml:2:12: run.dir: text must not hold a zero byte" },
    { "wrong word", DATA "optimizer: {kind: adam}\n",
      "t.yaml:2:19: optimizer.kind: must be adamw or sgd, not adam" },
    { "list for a value", DATA "model: {dim: [4]}\n",
      "t.yaml:2:14: model.dim: must be one value, not a list" },
    { "map for a value", DATA "model: {dim: {a: 4}}\n",
      "t.yaml:2:14: model.dim: must be one value, not a map" },
    { "value for a list", DATA "optimizer: {betas: 0.9}\n",
      "t.yaml:2:20: optimizer.betas: must be a list of two numbers, like [0.9, 0.95]" },
    { "short list", DATA "optimizer: {betas: [0.9]}\n",
      "t.yaml:2:20: optimizer.betas: must be a list of two numbers, like [0.9, 0.95]" },
    { "long list", DATA "optimizer: {betas: [0.9, 0.9, 0.9, 0.9, 0.9]}\n",
      "t.yaml:2:20: optimizer.betas: must be a list of two numbers, like [0.9, 0.95]" },
    { "one of a list out of range", DATA "optimizer: {betas: [0.9, 1]}\n",
      "t.yaml:2:20: optimizer.betas: must be a number from 0 to below 1, not 1" },
    { "list in a list", DATA "optimizer: {betas: [[0.9], 0.9]}\n",
      "t.yaml:2:20: optimizer.betas: must not be a list of lists" },
    { "value for a section", DATA "model: 4\n",
      "t.yaml:2:8: model: must be a map of keys and values" },
    { "list for a section", DATA "model: [dim, 4]\n",
      "t.yaml:2:8: model: must be a map of keys and values" },
    { "list for the file", "- data\n- model\n",
      "t.yaml:1:1: a job file is a map of sections" },
    { "text for the file", "hello\n",
      "t.yaml:1:1: a job file is a map of sections" },
    { "anchor and alias", DATA "model: {dim: &d 64, heads: *d}\n",
      "t.yaml:2:14: model.dim: anchors (&) are not allowed\n"
      "t.yaml:2:28: model.heads: aliases (*) are not allowed: a name that begins with * needs quotes" },
    { "alias bomb", "a: &a [x, x]\nb: &b [*a, *a]\ndata: {path: d}\n",
      "t.yaml:1:1: a: is no section of a job file\n"
      "t.yaml:1:4: a: anchors (&) are not allowed\n"
      "t.yaml:2:1: b: is no section of a job file\n"
      "t.yaml:2:4: b: anchors (&) are not allowed\n"
      "t.yaml:2:8: b[0]: aliases (*) are not allowed: a name that begins with * needs quotes\n"
      "t.yaml:2:12: b[1]: aliases (*) are not allowed: a name that begins with * needs quotes" },
    { "merge key", DATA "model:\n  <<: {dim: 64}\n",
      "t.yaml:3:3: model.<<: merge keys are not allowed: write the keys out" },
    { "tag", DATA "model: {dim: !!int 64}\n",
      "t.yaml:2:14: model.dim: tags (!) are not allowed" },
    { "tag on a map", DATA "model: !m {dim: 64}\n",
      "t.yaml:2:8: model: tags (!) are not allowed" },
    { "directive", "%YAML 1.1\n---\n" DATA,
      "t.yaml:1:1: directives (%) are not allowed" },
    { "two documents", DATA "---\n" DATA,
      "t.yaml:2:1: a job file is one document: this is a second one" },
    { "too deep", DATA "model: [[[[[[[[[[[[[[[[[[[[4]]]]]]]]]]]]]]]]]]]]\n",
      "t.yaml:2:8: model: must be a map of keys and values\n"
      "t.yaml:2:23: model[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]: is nested too deeply" },
    { "key that is a list", DATA "model: {[dim]: 4}\n",
      "t.yaml:2:9: model: a key must be text" },
    { "empty file", "",
      "t.yaml:1:1: the job file is empty" },
    { "only comments", "# nothing\n\n",
      "t.yaml:1:1: the job file is empty" },
    { "not UTF-8", DATA "run: {dir: a\xff}\n",
      "t.yaml:2:13: is not UTF-8 text (byte 0xff)" },
    { "overlong UTF-8", DATA "run: {dir: \xc0\xaf}\n",
      "t.yaml:2:12: is not UTF-8 text (byte 0xc0)" },
    { "UTF-16", "\xff\xfe" "d",
      "t.yaml:1:1: is not UTF-8 text (byte 0xff)" },
    { "control character", DATA "run: {dir: a\001b}\n",
      "t.yaml:2:13: control characters are not allowed" },
    { "tab for indentation", DATA "model:\n\tdim: 64\n",
      "t.yaml:3:1: a tab: indent with spaces" },
    { "tab deeper", DATA "model:\n  dim: 64\n\theads: 4\n",
      "t.yaml:4:1: a tab: indent with spaces" },
    { "open brace", DATA "model: {dim: 64\n",
      "t.yaml:3:1: expected , or }: a brace is not closed, or a comma is missing (begun in line 2)" },
    { "open bracket", DATA "optimizer: {betas: [0.9, 0.95}\n",
      "t.yaml:2:30: expected , or ]: a bracket is not closed, or a comma is missing" },
    { "open quote", DATA "run: {dir: \"abc\n",
      "t.yaml:3:1: a quote is not closed (begun in line 2)" },
    { "wrong indentation", DATA "model:\n   dim: 64\n  heads: 4\n",
      "t.yaml:4:3: the indentation does not fit the lines above" },
    { "two colons", DATA "model: dim: 64\n",
      "t.yaml:2:8: model: must be a map of keys and values\n"
      "t.yaml:2:11: a second ': ' in one line, or a wrong indentation" },
    { "no colon", DATA "model\n",
      "t.yaml:3:1: expected ':' after a key" },
    { "no data.path", "train: {steps: 4}\n",
      "t.yaml:1:1: data.path: must be given" },
    { "no data.path in data", "data:\n  order: sequential\n",
      "t.yaml:1:1: data.path: must be given" },
    { "heads do not divide", DATA "model:\n  dim: 100\n  heads: 3\n",
      "t.yaml:4:10: model.heads: 3 heads do not divide model.dim 100" },
    { "default heads do not divide", DATA "model:\n  dim: 100\n",
      "t.yaml:3:8: model.heads: 8 heads do not divide model.dim 100" },
    { "small vocab", DATA "model: {vocab: 255}\n",
      "t.yaml:2:16: model.vocab: must be at least 256 for data.tokenizer byte, not 255" },
    { "long warm-up", DATA "train: {steps: 10}\noptimizer: {warmup_steps: 11}\n",
      "t.yaml:3:27: optimizer.warmup_steps: 11 is more than train.steps 10" },
    { "momentum of adamw", DATA "optimizer: {momentum: 0.9}\n",
      "t.yaml:2:23: optimizer.momentum: is sgd's: adamw has betas" },
    { "batch split", DATA "launch: {nproc_per_node: 4}\ntrain: {global_batch: 10}\n",
      "t.yaml:3:23: train.global_batch: 10 sequences cannot be split evenly over 4 ranks" },
    { "both batches", DATA "train: {global_batch: 8, grad_accumulation: 2}\n",
      "t.yaml:2:23: train.global_batch: stands in place of train.grad_accumulation: give one of them" },
    { "unknown collectives", DATA "run: {collectives: mpi}\n",
      "t.yaml:2:20: run.collectives: must be auto, cpu or nccl, not mpi" },
    { "unknown device", DATA "run: {device: tpu}\n",
      "t.yaml:2:15: run.device: must be auto, cpu or cuda, not tpu" },
    { "uneven copies", DATA "launch: {nproc_per_node: 3}\nparallel: {replicate: 2}\n",
      "t.yaml:3:23: parallel.replicate: 2 copies of the model do not divide 3 ranks" },
    { "uneven tensor groups", DATA "launch: {nproc_per_node: 4}\nparallel: {tensor: 3}\n",
      "t.yaml:3:20: parallel.tensor: groups of 3 do not divide 4 ranks" },
    { "heads that do not divide", DATA "launch: {nproc_per_node: 3}\nparallel: {tensor: 3}\n",
      "t.yaml:3:20: parallel.tensor: 3 ranks do not divide 8 heads and 2048 features between them" },
    { "copies of what is left", DATA "launch: {nproc_per_node: 4}\nparallel: {tensor: 2, replicate: 4}\n",
      "t.yaml:3:34: parallel.replicate: 4 copies of the model do not divide 2 ranks, parallel.tensor "
      "counted once" },
    { "only blocks of a transformer", DATA "launch: {nproc_per_node: 2}\nmodel: {kind: gpt2}\nparallel: "
      "{tensor: 2}\n",
      "t.yaml:4:20: parallel.tensor: is not supported for model.kind gpt2: only transformer is split" },
    { "dropped heads", DATA "launch: {nproc_per_node: 2}\nmodel: {dropout: 0.1}\nparallel: {tensor: 2}\n",
      "t.yaml:4:20: parallel.tensor: needs model.dropout: 0: heads of attention are dropped whole" },
    { "no half floats", DATA "parallel: {param_dtype: float16, reduce_dtype: float16, output_dtype: "
      "float64}\n",
      "t.yaml:2:25: parallel.param_dtype: float16 is not supported: gradients of that type vanish without a "
      "loss scaler, and there is none; use float32 or bfloat16\n"
      "t.yaml:2:48: parallel.reduce_dtype: float16 is not supported: gradients of that type vanish without "
      "a loss scaler, and there is none; use float32 or bfloat16\n"
      "t.yaml:2:71: parallel.output_dtype: must be null, float32 or bfloat16, not float64" },
    { "nothing to draw", DATA "parallel: {stochastic_rounding: true}\n",
      "t.yaml:2:33: parallel.stochastic_rounding: needs param_dtype: bfloat16: nothing is rounded to "
      "float32" },
    { "codes to draw", DATA "parallel: {param_dtype: bfloat16, float8_gather: true, stochastic_rounding: "
      "true}\n",
      "t.yaml:2:77: parallel.stochastic_rounding: is not supported with float8_gather: codes are rounded to "
      "nearest" },
    { "a rule with nothing to draw", DATA "parallel:\n  param_dtype: bfloat16\n  stochastic_rounding: true\n"
      "  groups: [{modules: a}, {modules: b, param_dtype: float32}, {modules: c, stochastic_rounding: "
      "false, param_dtype: float32}]\n",
      "t.yaml:5:11: parallel.groups: stochastic_rounding of rule 1 needs param_dtype: bfloat16: nothing is "
      "rounded to float32" },
    { "unknown offload", DATA "parallel: {offload: disk}\n",
      "t.yaml:2:21: parallel.offload: must be none, cpu or nvme, not disk" },
    { "nothing to put there", DATA "parallel: {offload: cpu, offload_dir: /scratch}\n",
      "t.yaml:2:39: parallel.offload_dir: is for parallel.offload: nvme" },
    { "rules that are a text", DATA "parallel: {groups: \"layers.*\"}\noptimizer: {groups: 4}\n",
      "t.yaml:2:20: parallel.groups: must be a list of at most 64 maps, like [{modules: layers.*}, "
      "{modules: [tok_embeddings, output], reshard_after_forward: false}]\n"
      "t.yaml:3:21: optimizer.groups: must be a list of at most 64 maps, like [{parameters: [\"*.bias\", "
      "\"*norm.*\"], weight_decay: 0.0}, {parameters: \"tok_embeddings.*\", lr: 1.0e-4}]" },
    { "rules each with its place", DATA "parallel:\n  groups:\n    - modules: layers.*\n      lr: 1\n"
      "    - {modules: [a, 4 b], param_dtype: float64}\n    - layers.*\n    - reshard_after_foward: true\n  "
      "    unshard_in_backward: 1\n"
      "    - {param_dtype: bfloat16}\n    - {modules: {}}\n    - {modules: a, offload: cpu}\n",
      "t.yaml:5:7: parallel.groups[0].lr: is nothing that a rule can set\n"
      "t.yaml:6:21: parallel.groups[1].modules[1]: must be a name or a pattern, like layers.* or \"*.bias\"\n"
      "t.yaml:6:40: parallel.groups[1].param_dtype: must be float32 or bfloat16, not float64\n"
      "t.yaml:7:7: parallel.groups[2]: must be a map, like {modules: layers.*}\n"
      "t.yaml:8:7: parallel.groups[3].reshard_after_foward: is nothing that a rule can set; did you mean "
      "reshard_after_forward?\n"
      "t.yaml:8:7: parallel.groups[3]: modules must be given, like {modules: layers.*}\n"
      "t.yaml:9:28: parallel.groups[3].unshard_in_backward: must be true or false, not 1\n"
      "t.yaml:10:7: parallel.groups[4]: modules must be given, like {modules: layers.*}\n"
      "t.yaml:11:17: parallel.groups[5].modules: must be a name or a pattern, like layers.* or \"*.bias\"\n"
      "t.yaml:12:20: parallel.groups[6].offload: is nothing that a rule can set" },
    { "rules of the optimizer", DATA "optimizer:\n  groups: [{parameters: \"*.bias\", weight_decay: -1}, "
      "{parameters: a, lr: [1]}, {parameters: {a: b}}]\n",
      "t.yaml:3:49: optimizer.groups[0].weight_decay: must be a number from 0 to 1000000, not -1\n"
      "t.yaml:3:74: optimizer.groups[1].lr: must be one value\n"
      "t.yaml:3:93: optimizer.groups[2].parameters: must be a name or a pattern, like layers.* or "
      "\"*.bias\"" },
    { "a placement that is none", DATA "parallel: {placement: [{parameters: a, dim: 4}]}\n",
      "t.yaml:2:45: parallel.placement[0].dim: must be a whole number from 0 to 3, not 4" },
    { "stars without quotes", DATA "model: {frozen: [*.bias]}\n",
      "t.yaml:2:19: a value that begins with * or & needs quotes" },
    { "names that are none", DATA "model: {frozen: [a, \"\", {b: c}]}\nparallel: {ignored: {a: b}}\n",
      "t.yaml:2:21: model.frozen[1]: must be a name or a pattern, like layers.* or \"*.bias\"\n"
      "t.yaml:2:25: model.frozen[2]: must be a name or a pattern, like layers.* or \"*.bias\"\n"
      "t.yaml:3:21: parallel.ignored: must be a name or a pattern, like layers.* or \"*.bias\"" },
    { "a norm that is none", DATA "train: {clip_norm_type: 4}\n",
      "t.yaml:2:25: train.clip_norm_type: must be inf, or a whole number from 1 to 3, not 4" },
    { "an early optimizer that clips", DATA "optimizer: {in_backward: true}\n",
      "t.yaml:2:26: optimizer.in_backward: needs train.clip_norm: 0: weights are updated before the whole "
      "gradient's norm is known" },
    { "a recomputation that is none", DATA "parallel: {activation_checkpoint: 2, "
      "activation_checkpoint_every: 0}\n",
      "t.yaml:2:35: parallel.activation_checkpoint: must be none, full or selective, not 2\n"
      "t.yaml:2:67: parallel.activation_checkpoint_every: must be a whole number from 1 to 10000, not 0" },
    { "no group size", DATA "parallel: {reshard_after_forward: 0}\n",
      "t.yaml:2:35: parallel.reshard_after_forward: must be auto, true or false, or a whole number from 1 "
      "to 65536, not 0" },
    { "later validation share", "data: {path: d, validation: 0.1}\n",
      "t.yaml:1:29: data.validation: 0.1 is not supported yet; use 0.0" },
    { "later model", DATA "model: {kind: llama}\n",
      "t.yaml:2:15: model.kind: llama is not supported yet; use transformer or gpt2" },
    { "a preset of no kind", DATA "model: {preset: 124m}\n",
      "t.yaml:2:17: model.preset: is for model.kind: gpt2" },
    { "a gpt2 that is none", DATA "model: {kind: gpt2, tied: false, causal: false, preset: 1b, norm: "
      "rmsnorm}\n",
      "t.yaml:2:27: model.tied: cannot be false: the head of a gpt2 is its embedding\n"
      "t.yaml:2:42: model.causal: cannot be false: a gpt2 sees only what is before it\n"
      "t.yaml:2:57: model.preset: must be null, 124m, 355m, 774m or 1558m, not 1b\n"
      "t.yaml:2:67: model.norm: cannot be rmsnorm: a gpt2 has LayerNorms" },
    { "a norm of no kind", DATA "model: {norm: batchnorm}\n",
      "t.yaml:2:15: model.norm: must be layernorm or rmsnorm, not batchnorm" },
    { "later tokenizer", "data: {path: d, tokenizer: bpe.json}\n",
      "t.yaml:1:28: data.tokenizer: bpe.json is not supported yet; use byte" },
    { "an export nobody opens", DATA "checkpoint: {export: hf}\n",
      "t.yaml:2:22: checkpoint.export: must be none or huggingface, not hf" },
    { "several at once", DATA "model:\n  dim: x\n  dimm: 4\ntrain:\n  steps: -1\nrun: {seed: y}\n",
      "t.yaml:3:8: model.dim: must be a whole number from 1 to 1048576, not x\n"
      "t.yaml:4:3: model.dimm: is no key of a job file; did you mean dim?\n"
      "t.yaml:6:10: train.steps: must be a whole number from 0 to 99999999, not -1\n"
      "t.yaml:7:13: run.seed: must be a whole number from 0 to 9007199254740991, not y" },
};
/* clang-format on */

/* The lines that a text gives; its job is refused. */
static const char *lines_of(const char *text, size_t length, const char *name)
{
    static char lines[8192];
    struct job_origins origins;
    struct job job;

    cr_expect(
        eq(int, resolve_text(&job, &origins, text, length, NULL, 0, lines, sizeof lines), FSDP_ERR_CONFIG),
        "%s", name);
    return lines;
}

Test(broken_job, each_file_gives_its_lines)
{
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        cr_expect_str_eq(lines_of(broken[i].text, strlen(broken[i].text), broken[i].name), broken[i].lines,
                         "%s", broken[i].name);
}

Test(broken_job, twenty_problems_are_kept_in_the_order_of_the_file)
{
    char text[4096] = DATA "model:\n";
    const char *lines;
    size_t used = strlen(text), n_lines = 1;

    for (int i = 0; i < 30; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "  zebra%d: 1\n", i);
    lines = lines_of(text, used, "thirty problems");

    for (const char *c = lines; *c != '\0'; c++)
        n_lines += *c == '\n';
    cr_assert(eq(sz, n_lines, JOB_REPORT_MAX));
    cr_assert_not_null(strstr(lines, "t.yaml:3:3: model.zebra0: "));
    cr_assert_not_null(strstr(lines, "t.yaml:22:3: model.zebra19: "));
    cr_assert_null(strstr(lines, "zebra20"));
}

Test(broken_job, what_is_too_large_or_nested_without_end_is_refused_at_once, .timeout = 200)
{
    static char text[TREE_MAX_BYTES + 2] = DATA "model: ";

    memset(text + strlen(text), '[', 10000);
    cr_assert_not_null(strstr(lines_of(text, strlen(text), "nested"), "is nested too deeply"));
    memset(text, '#', sizeof text);
    cr_assert_str_eq(lines_of(text, sizeof text, "large"),
                     "t.yaml:1:1: is too large for a job file (1048578 bytes)");
}
