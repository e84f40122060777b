# The C library as an outsider meets it: every public header alone, in C and C++, fsdp.pc of a tree that was
# moved, and what becomes of calls that are wrong.
# Shares: the build folder, in which it runs make
. tests/support/shell/harness.sh

include=shard_runtime/include
# alone LANGUAGE STANDARD: the headers that cannot be the first and only one of a translation unit.
alone() {
  local header
  for header in "$include"/fsdp/*.h; do
    printf '#include <fsdp/%s>\nextern int fsdp_test_unit;\n' "${header##*/}" |
      g++ -x "$1" -std="$2" -fsyntax-only -Wall -Wextra -Wpedantic -Werror -I$include - 2> "$WORK/first" ||
      { echo "${header##*/}: $(grep -m 1 error "$WORK/first")"; }
  done
}
if command -v g++ > /dev/null; then
  check_eq "each public header compiles alone as C11" "" "$(alone c c11)"
  check_eq "... as C++17" "" "$(alone c++ c++17)"
  check_eq "... as C++20" "" "$(alone c++ c++20)"
else
  skip "public headers alone" "there is no g++"
fi
declared=$(grep -L FSDP_BEGIN_DECLS $include/fsdp/*.h | grep -v '/fsdp\.h$')
check_eq "each public header that declares something gives it C linkage" "" "$declared"

# An installed tree that is staged (DESTDIR), and then moved away from its prefix. The CUDA plug-in has no
# part in it.
make -s NVCC= BUILD="$BUILD" DESTDIR="$WORK/stage" PREFIX=/opt/fsdp install > "$WORK/install.log" 2>&1 || cat "$WORK/install.log" >&2
mkdir "$WORK/elsewhere" && cp -a "$WORK/stage/opt/fsdp" "$WORK/elsewhere/moved"
unset PKG_CONFIG_SYSROOT_DIR
flags() {
  PKG_CONFIG_PATH=$1/lib/pkgconfig pkg-config "${@:2}" --cflags --libs fsdp | tr -s ' ' | sed 's/ $//'
}
check_eq "fsdp.pc names the prefix" "-I/opt/fsdp/include -L/opt/fsdp/lib -lfsdp" "$(flags "$WORK/stage/opt/fsdp")"
check_eq "... the staged tree" "-I$WORK/stage/opt/fsdp/include -L$WORK/stage/opt/fsdp/lib -lfsdp" \
  "$(PKG_CONFIG_SYSROOT_DIR=$WORK/stage flags "$WORK/stage/opt/fsdp")"
check_eq "... the moved tree" "-I$WORK/elsewhere/moved/include -L$WORK/elsewhere/moved/lib -lfsdp" \
  "$(flags "$WORK/elsewhere/moved" --define-prefix)"
check_eq "... a prefix given by hand, libraries included" "-I/usr/fsdp/include -L/usr/fsdp/lib -lfsdp" \
  "$(flags "$WORK/stage/opt/fsdp" --define-variable=prefix=/usr/fsdp)"
make -s NVCC= BUILD="$BUILD" DESTDIR="$WORK/multiarch" PREFIX=/usr LIBDIR=/usr/lib/x86_64-linux-gnu install > "$WORK/install.log" 2>&1 ||
  cat "$WORK/install.log" >&2
check_eq "a LIBDIR below the prefix follows it, too" "libdir=\${prefix}/lib/x86_64-linux-gnu" \
  "$(grep ^libdir "$WORK/multiarch/usr/lib/x86_64-linux-gnu/pkgconfig/fsdp.pc")"

# A C++ program against the moved tree: it links by the C names, and words that it shares with an agent have
# their C size.
cat > "$WORK/outsider.cpp" <<'CPP'
extern "C" {
#include <fsdp/fsdp.h>
}
#include <cstdio>

static fsdp_value *forward(fsdp_module *self, fsdp_value *input, void *)
{
    return fsdp_call(fsdp_module_child(self, "out"), input);
}

int main()
{
    fsdp_err err = {};
    fsdp_context *context = nullptr;
    fsdp_model *model = nullptr;
    fsdp_module *root = fsdp_module_create(forward, nullptr);
    fsdp_model_options options = {};

    static_assert(sizeof(fsdp_progress::step) == 8 && alignof(fsdp_progress) == 8, "as in C");
    options.batch = options.seq = 2;
    options.input_features = 4;
    fsdp_linear(root, "out", 4, 3, true);
    if (fsdp_context_create(&context, nullptr, &err) != FSDP_OK || fsdp_fully_shard(root, nullptr, &err) != FSDP_OK ||
        fsdp_model_create(&model, context, root, &options, &err) != FSDP_OK)
        std::puts(err.message);
    std::printf("%zu parameters, page %zu\n", fsdp_model_parameter_count(model), sizeof(fsdp_progress));
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    fsdp_context_destroy(context);
}
CPP
case $BUILD in *asan*) san=-fsanitize=address,undefined ;; *) san= ;; esac
if command -v g++ > /dev/null; then
  # shellcheck disable=SC2046
  check "a C++ program builds against the moved tree" g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror $san "$WORK/outsider.cpp" \
    -o "$WORK/outsider" $(flags "$WORK/elsewhere/moved" --define-prefix)
  printf '#include <stdio.h>\n#include <fsdp/link.h>\nint main(void) { printf("%%zu", sizeof(struct fsdp_progress)); }\n' > "$WORK/size.c"
  cc -I$include "$WORK/size.c" -o "$WORK/size"
  check_eq "... and runs, with the progress page that C has" "2 parameters, page $("$WORK/size")" \
    "$(LD_LIBRARY_PATH="$WORK/elsewhere/moved/lib" "$WORK/outsider" 2>&1)"
fi

# Misuses: each comes back with its own words, and nothing of it is left in memory. AddressSanitizer finds
# leaks of a library that was built without it, too; valgrind does not know every instruction, so the kernels
# are those of the reference.
moved=$WORK/elsewhere/moved
# shellcheck disable=SC2046
misuse() { # NAME FLAGS...
  local name=$1; shift
  cc -std=c11 -Wall -Wextra -Werror -g "$@" tests/support/workers/misuse/*.c -o "$WORK/$name" $(flags "$moved" --define-prefix) -lm
}
check "the misuses build against the installed headers alone" misuse misuse_asan -fsanitize=address,undefined
check_status "each misuse is refused in its own words, without a crash or a leak" 0 \
  env LD_LIBRARY_PATH="$moved/lib" sh -c "cd '$WORK' && ASAN_OPTIONS=detect_leaks=1 ./misuse_asan" || cat "$WORK/out"
check "they are at least 200" awk '/ misuses, 0 wrong$/ { n = $1 } END { exit !(n >= 200) }' "$WORK/out"
left_out=$(for name in $(sed -n '/FSDP_API/,/;/p' $include/fsdp/*.h | grep -oE '\bfsdp_[a-z0-9_]+ *\(' | tr -d ' (' | sort -u); do
  grep -qw "$name" tests/support/workers/misuse/*.c || echo "$name"; done)
check_eq "every public function is among them" "" "$left_out"
check "nothing is left of them on the disk" test ! -e "$WORK/x" -a ! -e "$WORK/nowhere"
if [ -n "$san" ]; then
  skip "valgrind has nothing to say about the misuses" "this build has sanitizers"
elif ! command -v valgrind > /dev/null; then
  skip "valgrind has nothing to say about the misuses" "there is no valgrind"
else
  check "they build without sanitizers" misuse misuse_plain
  check_status "valgrind has nothing to say about the misuses" 0 env LD_LIBRARY_PATH="$moved/lib" FSDP_NUMERICS=ref FSDP_ISA=base \
    sh -c "cd '$WORK' && valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite,indirect,possible \
    ./misuse_plain"
fi
