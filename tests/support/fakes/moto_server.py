"""moto, a server of S3's protocol that checks signatures, with faults that it is told on standard input.

  moto_server.py [PORT]   prints its port, a key and its secret: the same ones each time it is started

It has an empty bucket, "bucket", and keeps objects in memory. It serves until standard input ends. A line there is
answered by the line "ok":
  fail N   from then on each Nth request fails, in turn: it has status 503 and is not done; its connection ends and it
           is not done; it is done, and its connection ends without an answer. 0: none fails
  die N    the Nth request from then on is the last: the process is killed in the middle of it
  down N   from the Nth request on none is done, and its connection ends. What was stored is kept
  up       waits until it is down, and then it serves again
"""
import os
import signal
import socket
import sys
import threading

answers = os.fdopen(os.dup(1), 'w')
os.dup2(2, 1)  # moto greets on its standard output
os.environ['INITIAL_NO_AUTH_ACTION_COUNT'] = '4'  # requests without a signature: they make a user, a key and a bucket

import json
import urllib.request

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

moto = DomainDispatcherApplication(create_backend_app)
lock = threading.Lock()
n_requests, fail_each, die_at, down_at = 0, 0, 0, 0
is_down = threading.Event()


def fault_of_next():
    global n_requests
    with lock:
        n_requests += 1
        if n_requests == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if n_requests == down_at:
            is_down.set()
        if is_down.is_set():
            return 'cut'
        if fail_each == 0 or n_requests % fail_each != 0:
            return None
        return ('503', 'cut', 'lost')[n_requests // fail_each % 3]


def app(environ, start_response):
    fault = fault_of_next()
    if fault is None:
        return moto(environ, start_response)
    if fault == 'lost':
        b''.join(moto(environ, lambda *_: None))
    if fault != '503':
        environ['werkzeug.socket'].shutdown(socket.SHUT_RDWR)
    start_response('503 Slow Down', [('Connection', 'close'), ('Content-Length', '0')])
    return []


def listen(port, to):
    server = make_server('127.0.0.1', port, to, True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def seed(port, number):
    urllib.request.urlopen(urllib.request.Request('http://127.0.0.1:%d/moto-api/seed?a=%d' % (port, number), method='POST'))


def furnish(port):
    at = dict(endpoint_url='http://127.0.0.1:%d' % port, region_name='us-east-1', aws_access_key_id='x', aws_secret_access_key='y')
    seed(port, 1)  # keys are random
    iam = boto3.client('iam', **at)
    iam.create_user(UserName='u')
    key = iam.create_access_key(UserName='u')['AccessKey']
    allowed = {'Version': '2012-10-17', 'Statement': [{'Effect': 'Allow', 'Action': '*', 'Resource': '*'}]}
    iam.put_user_policy(UserName='u', PolicyName='p', PolicyDocument=json.dumps(allowed))
    boto3.client('s3', **at).create_bucket(Bucket='bucket')
    seed(port, os.getpid())  # uploads have other names each time
    return key


key = furnish(listen(0, moto).port)  # a port that no run knows: its requests would count as those without a signature
server = listen(int(sys.argv[1]) if len(sys.argv) > 1 else 0, app)
print(server.port, key['AccessKeyId'], key['SecretAccessKey'], file=answers, flush=True)
for line in sys.stdin:
    word, *number = line.split()
    if word == 'up':
        is_down.wait()
        is_down.clear()
    with lock:
        n_requests = 0
        fail_each, die_at, down_at = (int(number[0]) if word == order else 0 for order in ('fail', 'die', 'down'))
    print('ok', file=answers, flush=True)
