# Checkpoints in moto, a server of S3's protocol that checks signatures. FSDP_TEST_MOTO names a Python that has it:
#   python3 -m venv DIR && DIR/bin/pip install 'moto[server]'   then FSDP_TEST_MOTO=DIR/bin/python
. tests/support/shell/harness.sh
. tests/support/shell/train.sh
if [ -z "${FSDP_TEST_MOTO:-}" ]; then
  skip "a job saves into moto" "FSDP_TEST_MOTO names no Python with moto"
  exit 0
fi
# The first requests need no signature: they make a user, a key and a bucket.
cat > "$WORK/server.py" << 'PYTHON'
import os, sys
answers = os.fdopen(os.dup(1), 'w')
os.dup2(2, 1)  # moto greets on its standard output
os.environ['INITIAL_NO_AUTH_ACTION_COUNT'] = '4'
import json, boto3
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0)
server.start()
port = server.get_host_and_port()[1]
at = dict(endpoint_url='http://127.0.0.1:%d' % port, region_name='us-east-1', aws_access_key_id='x', aws_secret_access_key='y')
iam = boto3.client('iam', **at)
iam.create_user(UserName='u')
key = iam.create_access_key(UserName='u')['AccessKey']
allowed = {'Version': '2012-10-17', 'Statement': [{'Effect': 'Allow', 'Action': '*', 'Resource': '*'}]}
iam.put_user_policy(UserName='u', PolicyName='p', PolicyDocument=json.dumps(allowed))
boto3.client('s3', **at).create_bucket(Bucket='bucket')
print(port, key['AccessKeyId'], key['SecretAccessKey'], file=answers, flush=True)
sys.stdin.read()
PYTHON
mkfifo "$WORK/in" "$WORK/out"
no_proxy='*' "$FSDP_TEST_MOTO" "$WORK/server.py" < "$WORK/in" > "$WORK/out" 2> "$WORK/moto.log" &
exec {moto_in}> "$WORK/in" {moto_out}< "$WORK/out"
read -r -t 120 port id secret <&"$moto_out" || { not_ok "moto starts" "$(tail -n 3 "$WORK/moto.log")"; exit 1; }
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=$id AWS_SECRET_ACCESS_KEY=$secret no_proxy='*'
unset AWS_ENDPOINT_URL_S3 AWS_SESSION_TOKEN
tiny_job "$WORK/job.yaml"
far=s3://bucket/runs/far

run_job "$WORK/whole.log" "$WORK/job.yaml" --set run.name=whole
run_job "$WORK/far.log" "$WORK/job.yaml" --set run.name=far --set train.steps=10 --set "checkpoint.dir=$far"
check_eq "a job saves into moto" 0 $?
run_job "$WORK/far.log" "$WORK/job.yaml" --set run.name=far --set "checkpoint.dir=$far" --set checkpoint.keep=1
check_eq "it goes on from there" "0 1" "$? $(grep -c '"event": *"resume".*"step": *10' "$WORK/runs/far/events.jsonl")"
check_eq "every figure is that of a run with a disk" "$(figures "$WORK/runs/whole")" "$(figures "$WORK/runs/far")"
run_job "$WORK/big.log" "$WORK/job.yaml" --set run.name=big --set model.dim=448 --set model.layers=4 --set train.steps=1 \
  --set checkpoint.dir=s3://bucket/big
check_eq "a file of several parts is saved" 0 $?
check "and is sound" "$BIN/fsdprun" ckpt verify s3://bucket/big
AWS_SECRET_ACCESS_KEY=another "$BIN/fsdprun" ckpt ls "$far" > "$WORK/wrong.log" 2>&1
check_eq "with another secret the store refuses" "74 1" "$? $(grep -c 'HTTP status 403' "$WORK/wrong.log")"
exec {moto_in}>&-
