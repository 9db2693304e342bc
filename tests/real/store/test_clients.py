"""Official clients, as they come from PyPI, against the embedded store as Trainshed starts it."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from storekit import MIB, contents, fill

from trainshed.store import Credentials

pytestmark = [pytest.mark.store, pytest.mark.real]


def run(
    argv: list[object], env: dict[str, str] | None = None, ok: bool = True
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        list(map(str, argv)),
        env={"PATH": os.environ["PATH"], **(env or {})},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (done.returncode == 0) is ok, done.stdout[-2000:] + done.stderr[-3000:]
    return done


def script(clients: Path, store: Credentials, bucket: str, body: str, *more: object) -> None:
    head = "import sys; AK, SK, URL, BUCKET = sys.argv[1:5]; HOST, PORT = URL[7:].split(':')\n"
    run(
        [
            clients / "python",
            "-c",
            head + body,
            store.access_key,
            store.secret_key,
            store.endpoint,
            bucket,
            *more,
        ]
    )


ESDK = """
from obs import ObsClient, CompleteMultipartUploadRequest, CompletePart, DeleteObjectsRequest, Object
from obs import GetObjectHeader
import urllib.request
host, signature, many = sys.argv[5], sys.argv[6], int(sys.argv[7])
c = ObsClient(access_key_id=AK, secret_access_key=SK, server='http://%s:%s' % (host, PORT),
              signature=signature, path_style=True, max_retry_count=1)
def ok(r, status=(200, 204, 206)):
    assert r.status in status, (r.status, r.errorCode, r.errorMessage)
    return r
B = BUCKET + '-' + signature + '-' + host.replace('.', '-')
ok(c.createBucket(B)); ok(c.headBucket(B))
ok(c.putContent(B, 'a/V1/', None)); ok(c.putContent(B, 'a/V1/x', 'hello'))
ok(c.putContent(B, 'x', 'object')); ok(c.putContent(B, 'x/y', 'child'))
assert ok(c.getObject(B, 'a/V1/x', loadStreamInMemory=True)).body.buffer == b'hello'
part = ok(c.getObject(B, 'a/V1/x', loadStreamInMemory=True, headers=GetObjectHeader(range='1-3')))
assert part.status == 206 and part.body.buffer == b'ell'
ok(c.putContent(B, 'meta', 'm', metadata={'colour': 'blue'}))
assert ('colour', 'blue') in [(k.replace('x-amz-meta-', ''), v) for k, v in c.getObjectMetadata(B, 'meta').header]
keys = [o.key for o in ok(c.listObjects(B)).body.contents]
assert {'a/V1/', 'a/V1/x', 'x', 'x/y', 'meta'} <= set(keys), keys
deep = ok(c.listObjects(B, delimiter='/')).body
assert {p.prefix for p in deep.commonPrefixs} == {'a/', 'x/'}
up = ok(c.initiateMultipartUpload(B, 'multi')).body.uploadId
parts = []
for n, data in ((1, b'p' * (5 << 20)), (2, b'q')):
    parts.append(CompletePart(partNum=n, etag=dict(ok(c.uploadPart(B, 'multi', n, up, data)).header)['etag']))
ok(c.completeMultipartUpload(B, 'multi', up, CompleteMultipartUploadRequest(parts=parts)))
assert ok(c.getObjectMetadata(B, 'multi')).body.contentLength == (5 << 20) + 1
ok(c.copyObject(B, 'x', B, 'copied')); assert c.getObject(B, 'copied', loadStreamInMemory=True).body.buffer == b'object'
url = c.createSignedUrl('GET', B, 'x', expires=60).signedUrl
assert urllib.request.urlopen(url).read() == b'object'
if many:
    seen, marker = 0, None
    while True:
        page = ok(c.listObjects('listing', max_keys=1000, marker=marker)).body
        seen += len(page.contents)
        if not page.is_truncated: break
        marker = page.next_marker
    assert seen == many, seen
ok(c.deleteObject(B, 'copied')); assert c.getObjectMetadata(B, 'copied').status == 404
ok(c.deleteObjects(B, DeleteObjectsRequest(quiet=False, objects=[Object(key=k) for k in ('x', 'x/y', 'meta', 'multi')])))
assert {o.key for o in c.listObjects(B).body.contents} == {'a/V1/', 'a/V1/x'}
wrong = ObsClient(access_key_id=AK, secret_access_key='wrong', server='http://%s:%s' % (host, PORT), signature=signature, path_style=True, max_retry_count=0)
assert wrong.getObject(B, 'a/V1/x').status == 403 and wrong.putContent(B, 'no', 'x').status == 403
"""

BOTO = """
import boto3, botocore, urllib.request
from botocore.config import Config
version, many = sys.argv[5], int(sys.argv[6])
def make(secret, version=version):
    return boto3.client('s3', endpoint_url=URL, aws_access_key_id=AK, aws_secret_access_key=secret, region_name='us-east-1',
        config=Config(signature_version=version, s3={'addressing_style': 'path'}, retries={'max_attempts': 0},
                      request_checksum_calculation='when_required', response_checksum_validation='when_required'))
c = make(SK); B = BUCKET + '-' + version
def refused(call, *args):
    try: call(*args); raise SystemExit('was let in')
    except botocore.exceptions.ClientError as e: assert e.response['ResponseMetadata']['HTTPStatusCode'] == 403
c.create_bucket(Bucket=B)
c.put_object(Bucket=B, Key='a/V1/', Body=b''); c.put_object(Bucket=B, Key='a/V1/x', Body=b'hello', Metadata={'k': 'v'})
c.put_object(Bucket=B, Key='x', Body=b'object'); c.put_object(Bucket=B, Key='x/y', Body=b'child')
got = c.get_object(Bucket=B, Key='a/V1/x'); assert got['Body'].read() == b'hello' and got['Metadata'] == {'k': 'v'}
assert c.get_object(Bucket=B, Key='a/V1/x', Range='bytes=1-3')['Body'].read() == b'ell'
assert {o['Key'] for o in c.list_objects_v2(Bucket=B)['Contents']} == {'a/V1/', 'a/V1/x', 'x', 'x/y'}
up = c.create_multipart_upload(Bucket=B, Key='m')['UploadId']
parts = [{'PartNumber': n, 'ETag': c.upload_part(Bucket=B, Key='m', UploadId=up, PartNumber=n, Body=d)['ETag']}
         for n, d in ((1, b'p' * (5 << 20)), (2, b'q'))]
c.complete_multipart_upload(Bucket=B, Key='m', UploadId=up, MultipartUpload={'Parts': parts})
assert c.head_object(Bucket=B, Key='m')['ContentLength'] == (5 << 20) + 1
c.copy_object(Bucket=B, Key='copied', CopySource={'Bucket': B, 'Key': 'x'})
assert c.get_object(Bucket=B, Key='copied')['Body'].read() == b'object'
url = c.generate_presigned_url('get_object', Params={'Bucket': B, 'Key': 'x'}, ExpiresIn=60)
assert urllib.request.urlopen(url).read() == b'object'
put = c.generate_presigned_url('put_object', Params={'Bucket': B, 'Key': 'presigned'}, ExpiresIn=60)
urllib.request.urlopen(urllib.request.Request(put, data=b'up', method='PUT', headers={'Content-Type': ''}))
assert c.get_object(Bucket=B, Key='presigned')['Body'].read() == b'up'
if many:
    assert c.list_objects_v2(Bucket='listing')['KeyCount'] == 1000
    assert sum(len(p['Contents']) for p in c.get_paginator('list_objects_v2').paginate(Bucket='listing')) == many
c.delete_object(Bucket=B, Key='copied')
c.delete_objects(Bucket=B, Delete={'Objects': [{'Key': k} for k in ('x', 'x/y', 'm', 'presigned')]})
assert {o['Key'] for o in c.list_objects_v2(Bucket=B)['Contents']} == {'a/V1/', 'a/V1/x'}
for call in (lambda w: w.get_object(Bucket=B, Key='a/V1/x'), lambda w: w.put_object(Bucket=B, Key='no', Body=b''),
             lambda w: w.list_objects_v2(Bucket=B), lambda w: w.head_bucket(Bucket=B)):
    refused(call, make('wrong'))
"""

OBSTORE = """
import obstore
from obstore.store import S3Store
many = int(sys.argv[5])
def make(bucket, secret=SK):
    return S3Store(bucket, endpoint=URL, access_key_id=AK, secret_access_key=secret, region='us-east-1',
                   client_options={'allow_http': True}, retry_config={'max_retries': 0})
s = make(BUCKET)
s.put('a/x', b'hello'); assert bytes(s.get('a/x').bytes()) == b'hello'
assert bytes(s.get_range('a/x', start=1, end=4)) == b'ell'
s.put('multi', b'm' * (12 << 20), chunk_size=5 << 20); assert s.head('multi')['size'] == 12 << 20
s.copy('a/x', 'copied'); assert bytes(s.get('copied').bytes()) == b'hello'
assert {o['path'] for page in s.list() for o in page} == {'a/x', 'multi', 'copied'}
assert sum(len(page) for page in make('listing').list()) == many
s.delete(['copied', 'multi']); assert {o['path'] for page in s.list() for o in page} == {'a/x'}
try: make(BUCKET, 'wrong').get('a/x'); raise SystemExit('a wrong key was let in')
except obstore.exceptions.BaseError as e: pass
"""


@pytest.mark.parametrize(
    ("host", "signature"),
    [("127.0.0.1", "v2"), ("127.0.0.1", "v4"), ("localhost", "obs"), ("localhost", "v4")],
)
def test_esdk_obs_python(
    clients: Path, store: Credentials, bucket: str, listing: int, host: str, signature: str
) -> None:
    script(clients, store, bucket, ESDK, host, signature, listing if signature == "v2" else 0)


def test_boto3(clients: Path, store: Credentials, bucket: str, listing: int) -> None:
    script(clients, store, bucket, BOTO, "s3v4", listing)


BOTO_V2 = """
import boto3, botocore
from botocore.config import Config
c = boto3.client('s3', endpoint_url=URL, aws_access_key_id=AK, aws_secret_access_key=SK, region_name='us-east-1',
                 config=Config(signature_version='s3', s3={'addressing_style': 'path'}, retries={'max_attempts': 1}))
c.put_object(Bucket=BUCKET, Key='x', Body=b'object')
assert c.get_object(Bucket=BUCKET, Key='x')['Body'].read() == b'object'
for call in (lambda: c.list_objects_v2(Bucket=BUCKET), lambda: c.create_bucket(Bucket=BUCKET + '-v2')):
    try: call(); raise SystemExit('was served')
    except botocore.exceptions.ClientError as e: assert e.response['Error']['Code'] == 'SignatureDoesNotMatch', e
"""


def test_boto3_with_signatures_v2_reaches_objects_but_not_buckets(
    clients: Path, store: Credentials, bucket: str
) -> None:
    """As docs/store.md says."""
    script(clients, store, bucket, BOTO_V2)


def test_obstore(clients: Path, store: Credentials, bucket: str, listing: int) -> None:
    script(clients, store, bucket, OBSTORE, listing)


def test_s5cmd(clients: Path, store: Credentials, bucket: str, listing: int, tmp_path: Path) -> None:
    env = {**store.environment(), "S3_ENDPOINT_URL": store.endpoint}
    s5cmd = [clients / "s5cmd", "--retry-count=0"]
    source = tmp_path / "a"
    for number in range(20):
        fill(source / f"d/f{number}", 100 + number)
    fill(source / "big", 12 * MIB)
    run([*s5cmd, "mb", f"s3://{bucket}-s5"], env)
    run([*s5cmd, "cp", "-p", 5, f"{source}/", f"s3://{bucket}-s5/t/"], env)
    run([*s5cmd, "cp", f"s3://{bucket}-s5/t/*", f"{tmp_path}/b/"], env)
    assert contents(tmp_path / "b") == contents(source)
    run([*s5cmd, "cp", f"s3://{bucket}-s5/t/big", f"s3://{bucket}-s5/copied"], env)
    assert len(run([*s5cmd, "ls", "s3://listing/*"], env).stdout.splitlines()) == listing
    head = json.loads(run([*s5cmd, "--json", "ls", f"s3://{bucket}-s5/copied"], env).stdout)
    assert head["size"] == 12 * MIB
    run([*s5cmd, "rm", f"s3://{bucket}-s5/t/*"], env)
    assert "copied" in run([*s5cmd, "ls", f"s3://{bucket}-s5/*"], env).stdout
    wrong = {**env, "AWS_SECRET_ACCESS_KEY": "wrong"}
    assert "SignatureDoesNotMatch" in run([*s5cmd, "ls", f"s3://{bucket}-s5/"], wrong, ok=False).stderr


def test_rclone(clients: Path, store: Credentials, bucket: str, listing: int, tmp_path: Path) -> None:
    env = {
        "RCLONE_CONFIG_TS_TYPE": "s3",
        "RCLONE_CONFIG_TS_PROVIDER": "SeaweedFS",
        "RCLONE_CONFIG_TS_ENDPOINT": store.endpoint,
        "RCLONE_CONFIG_TS_ACCESS_KEY_ID": store.access_key,
        "RCLONE_CONFIG_TS_SECRET_ACCESS_KEY": store.secret_key,
        "RCLONE_CONFIG": str(tmp_path / "none.conf"),
    }
    rclone = [clients / "rclone", "--retries=1", "--low-level-retries=1"]
    source = tmp_path / "a"
    for number in range(20):
        fill(source / f"d/f{number}", 100 + number)
    fill(source / "big", 12 * MIB)
    run([*rclone, "mkdir", f"ts:{bucket}-rc"], env)
    run([*rclone, "--s3-upload-cutoff=5M", "--s3-chunk-size=5M", "copy", source, f"ts:{bucket}-rc/t"], env)
    run([*rclone, "copy", f"ts:{bucket}-rc/t", tmp_path / "b"], env)
    assert contents(tmp_path / "b") == contents(source)
    run([*rclone, "check", source, f"ts:{bucket}-rc/t"], env)
    (source / "text").write_text("hello")
    run([*rclone, "copy", source, f"ts:{bucket}-rc/t"], env)
    assert run([*rclone, "cat", "--offset=1", "--count=3", f"ts:{bucket}-rc/t/text"], env).stdout == "ell"
    run([*rclone, "copyto", f"ts:{bucket}-rc/t/big", f"ts:{bucket}-rc/copied"], env)
    assert len(run([*rclone, "lsf", "ts:listing"], env).stdout.splitlines()) == listing
    run([*rclone, "delete", f"ts:{bucket}-rc/t"], env)
    assert run([*rclone, "lsf", "-R", "--files-only", f"ts:{bucket}-rc"], env).stdout.split() == ["copied"]
    wrong = {**env, "RCLONE_CONFIG_TS_SECRET_ACCESS_KEY": "wrong"}
    assert "403" in run([*rclone, "lsf", f"ts:{bucket}-rc"], wrong, ok=False).stderr
