# Sourced after harness.sh by the scripts that keep checkpoints in moto: a server of S3's protocol in Python that
# checks signatures. FSDP_TEST_MOTO names a Python that has it, or scripts/test-moto.sh makes one.
moto_python=${FSDP_TEST_MOTO:-$(scripts/test-moto.sh 2> "$WORK/err")} ||
  { skip "checkpoints in moto" "$(tail -n 1 "$WORK/err")"; exit 0; }

# start_moto [PORT]: starts it with an empty bucket; moto is its process. The environment then has its place and
# credentials, which are the same for one that is started again at the same port. False: it does not start.
start_moto() {
  local port id secret
  rm -f "$WORK/moto.in" "$WORK/moto.out"
  mkfifo "$WORK/moto.in" "$WORK/moto.out"
  no_proxy='*' "$moto_python" tests/support/fakes/moto_server.py "$@" < "$WORK/moto.in" > "$WORK/moto.out" 2>> "$WORK/moto.log" & moto=$!
  exec {moto_in}> "$WORK/moto.in" {moto_out}< "$WORK/moto.out"
  read -r -t 120 port id secret <&"$moto_out" || { not_ok "moto starts" "$(tail -n 3 "$WORK/moto.log")"; return 1; }
  export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=$id AWS_SECRET_ACCESS_KEY=$secret no_proxy='*'
  unset AWS_ENDPOINT_URL_S3 AWS_SESSION_TOKEN
}
# tell_moto WORD...: the lines of tests/support/fakes/moto_server.py
tell_moto() { local answer; echo "$*" >&"$moto_in" && read -r -t 60 answer <&"$moto_out"; }
stop_moto() { exec {moto_in}>&- {moto_out}<&-; wait "$moto"; }
