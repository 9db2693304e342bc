"""`moxing` as public scripts use it, in an environment that has never heard of Trainshed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from storekit import fill

import trainshed
from trainshed.store import Credentials, read_bytes

pytestmark = [pytest.mark.store, pytest.mark.real]

SITE = Path(trainshed.__file__).parent / "payload/modelarts"
HEAD = """
import sys, os, errno
import moxing as mox
B, W = sys.argv[1], sys.argv[2]
def raises(kind, call, *args, **kwargs):
    try: call(*args, **kwargs)
    except kind as error: return error
    raise SystemExit('%s was not raised' % kind)
"""


def start(python: Path | str, store: Credentials, code: str, *argv: object) -> subprocess.Popen[str]:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SITE), "MOX_SILENT_MODE": "1", **store.environment()}
    return subprocess.Popen(
        [str(python), "-c", HEAD + code, *map(str, argv)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(python: Path | str, store: Credentials, code: str, *argv: object) -> str:
    process = start(python, store, code, *argv)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err[-3000:]
    return out


EVERY_FUNCTION = """
f = mox.file
os.makedirs(W)
pairs = [(a, b) for a in (W + '/l', 'obs://' + B + '/r', 's3://' + B + '/s') for b in (W + '/ll', 'obs://' + B + '/rr')]
for n, (a, b) in enumerate(pairs):
    a, b = '%s%d' % (a, n), '%s%d' % (b, n)
    f.make_dirs(a + '/sub'); f.make_dirs(a + '/sub'); assert f.is_directory(a + '/sub') and not f.is_directory(a + '/none')
    f.write(a + '/one', 'text'); f.write(a + '/sub/two', b'\\x00\\xff', binary=True)
    assert f.exists(a) and f.exists(a + '/one') and not f.exists(a + '/none')
    assert f.read(a + '/one') == 'text' and f.read(a + '/sub/two', binary=True) == b'\\x00\\xff'
    f.append(a + '/one', '+more'); assert f.read(a + '/one') == 'text+more'
    f.append_remote(a + '/one', a + '/joined'); f.append_remote(a + '/one', a + '/joined')
    assert f.read(a + '/joined') == 'text+more' * 2
    error = raises(IsADirectoryError, f.copy, a, b); assert 'copy_parallel' in str(error)
    f.copy(a + '/one', b + '/copied'); assert f.read(b + '/copied') == 'text+more'
    f.copy_parallel(a, b + '/tree'); assert sorted(f.list_directory(b + '/tree')) == ['joined', 'one', 'sub']
    f.copy_parallel(a, b + '/some', file_list=['sub/two']); assert f.list_directory(b + '/some', recursive=True) == ['sub', 'sub/two']
    f.copy_parallel(a + '/one', b + '/single'); assert f.read(b + '/single') == 'text+more'
    assert sorted(f.list_directory(a, recursive=True)) == ['joined', 'one', 'sub', 'sub/two']
    assert f.list_directory(a, skip_file=True) == ['sub'] and sorted(f.list_directory(a, skip_dir=True)) == ['joined', 'one']
    assert raises(OSError, f.list_directory, a + '/one').errno == errno.ENOTDIR
    assert sorted(f.glob(a + '/*')) == [a + '/joined', a + '/one', a + '/sub'] and f.glob(a + '/s*/t?o') == [a + '/sub/two']
    assert [(r[len(a):].strip('/'), sorted(d), sorted(x)) for r, d, x in f.walk(a)] == [('', ['sub'], ['joined', 'one']), ('sub', [], ['two'])]
    assert sorted((e.name, e.is_dir()) for e in f.scan_dir(a)) == [('joined', False), ('one', False), ('sub', True)]
    info = f.stat(a + '/one'); assert info.length == 9 and info.mtime_nsec > 10**18 and not info.is_directory
    assert f.stat(a).is_directory; raises(f.MoxFileNotExistsException, f.stat, a + '/none')
    assert f.get_size(a + '/one') == 9 and f.get_size(a) == 0 and f.get_size(a, recursive=True) == 29
    raises(f.MoxFileNotExistsException, f.read, a + '/none'); raises(f.MoxFileNotExistsException, f.copy, a + '/none', b + '/x')
    raises((f.MoxFileNotExistsException, FileNotFoundError), f.mk_dir, a + '/no/parent'); f.mk_dir(a + '/made'); assert f.is_directory(a + '/made')
    f.rename(a + '/one', b + '/moved'); assert f.read(b + '/moved') == 'text+more' and not f.exists(a + '/one')
    f.rename(a + '/sub', b + '/dir'); assert f.read(b + '/dir/two', binary=True) and not f.exists(a + '/sub')
    f.remove(b + '/dir'); assert f.exists(b + '/dir/two')
    f.remove(b + '/moved'); assert not f.exists(b + '/moved'); raises(f.MoxFileNotExistsException, f.remove, b + '/moved')
    f.remove(a, recursive=True); f.remove(b, recursive=True); assert not f.exists(a) and not f.exists(b)
f.copy_parallel('obs://' + B + '/nothing/here', W + '/empty'); assert os.listdir(W + '/empty') == []
f.set_auth(is_secure=False, retry=3, nobody_knows=1); assert f.exists('obs://' + B)
f.set_auth(ak='wrong', sk='wrong'); error = raises(f.MoxFileRespException, f.read, 'obs://' + B + '/x'); assert error.resp.status == 403
"""


def test_every_function_in_every_direction(
    clients: Path, store: Credentials, bucket: str, tmp_path: Path
) -> None:
    run(clients / "python", store, EVERY_FUNCTION, bucket, tmp_path / "w")


FILE = """
import pandas as pd, pickle
for base in ('obs://' + B + '/f', W):
    mox.file.make_dirs(base)
    frame = pd.DataFrame({'a': [1, 2], 'b': ['x', 'ü']})
    with mox.file.File(base + '/t.csv', 'w') as h: frame.to_csv(h, index=False)
    with mox.file.File(base + '/t.csv', 'r') as h: assert pd.read_csv(h).equals(frame)
    with mox.file.File(base + '/t.csv', 'rb') as h: assert pd.read_csv(h).equals(frame)
    with mox.file.File(base + '/p', 'wb') as h: pickle.dump(frame, h)
    with mox.file.File(base + '/p', 'rb') as h: assert pickle.load(h).equals(frame)
    with mox.file.File(base + '/x', 'w') as h:
        h.write('one\\n'); h.writelines(['two\\n', 'three']); h.flush(); assert mox.file.read(base + '/x') == 'one\\ntwo\\nthree'
        assert h.size() == 13
    with mox.file.File(base + '/x', 'a') as h: h.write('!')
    with mox.file.File(base + '/x') as h:
        assert h.readline() == 'one\\n' and h.readlines() == ['two\\n', 'three!']
        h.seek(4); assert h.read(3) == 'two'; assert [l for l in mox.file.File(base + '/x')][0] == 'one\\n'
    with mox.file.File(base + '/x', 'r+') as h: h.seek(0); h.write('ONE')
    with mox.file.File(base + '/x', 'rb') as h: h.seek(-1, 2); assert h.tell() == 13 and h.read() == b'!' and h.size() == 14
    assert mox.file.read(base + '/x').startswith('ONE'); raises(FileNotFoundError, mox.file.File, base + '/none', 'r')
url = 'obs://' + B + '/f/half'
try:
    with mox.file.File(url, 'w') as h: h.write('half'); raise KeyError
except KeyError: assert not mox.file.exists(url)
big = os.urandom(9 << 20)
with mox.file.File('obs://' + B + '/big', 'wb') as h: h.write(big)
with mox.file.File('obs://' + B + '/big', 'rb') as h: assert h.read() == big
"""


def test_pandas_reads_and_writes_through_file(
    clients: Path, store: Credentials, bucket: str, tmp_path: Path
) -> None:
    run(clients / "python", store, FILE, bucket, tmp_path / "w")


SHIFT = """
import glob, shutil, io
mox.file.shift('os', 'mox')
R = 'obs://' + B + '/shifted'
os.makedirs(R + '/d', exist_ok=True)
with open(R + '/d/a.txt', 'w') as h: h.write('hello')
with open(os.path.join(R, 'd', 'a.txt')) as h: assert h.read() == 'hello'
assert os.path.exists(R + '/d/a.txt') and os.path.isfile(R + '/d/a.txt') and os.path.isdir(R + '/d') and not os.path.exists(R + '/no')
assert os.listdir(R) == ['d'] and glob.glob(R + '/d/*.txt') == [R + '/d/a.txt'] and os.path.getsize(R + '/d/a.txt') == 5
shutil.copy(R + '/d/a.txt', W); assert open(W).read() == 'hello'
shutil.copyfile(W, R + '/b.txt'); os.rename(R + '/b.txt', R + '/c.txt'); assert sorted(os.listdir(R)) == ['c.txt', 'd']
shutil.copytree(R, W + '-tree'); assert sorted(os.listdir(W + '-tree')) == ['c.txt', 'd']
assert [len(fs) for _, _, fs in os.walk(R)] == [1, 1] and os.stat(R + '/c.txt').st_size == 5
raises(FileNotFoundError, open, R + '/none'); raises(FileExistsError, os.makedirs, R + '/d'); raises(FileNotFoundError, os.stat, R + '/none')
os.remove(R + '/c.txt'); shutil.rmtree(R); assert not os.path.exists(R)
os.makedirs(W + '-local/x'); assert os.listdir(W + '-local') == ['x']; shutil.rmtree(W + '-local')
mox.file.shift('mox', 'os'); raises(FileNotFoundError, open, R + '/d/a.txt')
"""


def test_shift_lets_ordinary_code_use_urls(store: Credentials, bucket: str, tmp_path: Path) -> None:
    run(sys.executable, store, SHIFT, bucket, tmp_path / "w")


ZOO = """
import time
rank, locks = int(sys.argv[3]), sys.argv[4]
lock = locks + '/copy_sync.lock0'
if rank % 8 == 0 and not os.path.exists(lock):
    mox.file.copy_parallel('obs://' + B + '/data', W)
    try: os.mknod(lock)
    except IOError: pass
end = time.time() + 60
while not os.path.exists(lock):
    assert time.time() < end
    time.sleep(0.05)
assert len(mox.file.list_directory(W)) == 50
mox.file.write('obs://' + B + '/out/rank%d' % rank, 'done')
"""


def test_eight_ranks_of_a_model_zoo_script_share_one_download(
    store: Credentials, bucket: str, tmp_path: Path
) -> None:
    from trainshed.store import copy, list_tree

    for number in range(50):
        fill(tmp_path / f"data/{number}", 2000)
    copy(str(tmp_path / "data"), f"obs://{bucket}/data", credentials=store)
    (tmp_path / "locks").mkdir()
    ranks = [
        start(sys.executable, store, ZOO, bucket, tmp_path / "cache", r, tmp_path / "locks") for r in range(8)
    ]
    for rank in ranks:
        _, err = rank.communicate(timeout=120)
        assert rank.returncode == 0, err[-2000:]
    assert len(list_tree(f"obs://{bucket}/out", credentials=store)) == 8
    assert read_bytes(f"obs://{bucket}/out/rank3", credentials=store) == b"done"
