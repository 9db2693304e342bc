#!/bin/bash
# STUBS.tar.gz OUTPUT VERSION modelarts: unpack the stubs, fill their code/, pack the whole under the package's name.
set -e
here=$(dirname "$(readlink -f "$0")")
stubs=$1 out=$2 version=$3 kind=$4
work=$(mktemp -d)
tar xf "$stubs" -C "$work"
base=$(find "$work" -maxdepth 1 -name 'Ais-Benchmark-Stubs*' -type d)
cp -r "$here"/target/scripts/* "$base/code/"
cp -r "$here/src/common" "$here/target/config" "$here/target/code" "$base/code/"
[ "$kind" = modelarts ] && sed -i 's|^RUNTYPE=.*|RUNTYPE="modelarts"|' "$base/code/benchmark.sh"
[ -n "$OLD_STUBS" ] && rm "$base/code/ais_utils.py"
[ -f "$base/code/ais_utils.py" ] || cp "$here/src/ais_utils_adapter.py" "$base/code/ais_utils.py"
chmod -R u+x "$base/code"
name="train_huawei_train_mindspore_resnet-$(basename "$stubs" .tar.gz)-${version}_$kind"
mv "$base" "$work/$name"
mkdir -p "$out"
tar czf "$out/$name.tar.gz" -C "$work" "$name"
rm -rf "$work"
echo "$out/$name.tar.gz"
