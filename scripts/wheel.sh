#!/usr/bin/env bash
# Packs what scripts/portable.sh has laid out, and the Python package fsdprun, as a wheel. No Python is needed.
#   scripts/wheel.sh BUILD VERSION TAG      writes BUILD/fsdprun-VERSION-TAG.whl
# pip puts NAME.data/scripts into bin and NAME.data/data into the prefix, so the programs find lib/fsdprun as
# they do in the tarball.
set -eu
cd "$(dirname "$0")/.."
build=$1 version=$2 tag=$3
tree=$build/portable/tree wheel=$build/portable/wheel file=fsdprun-$version-$tag.whl
data=$wheel/fsdprun-$version.data info=$wheel/fsdprun-$version.dist-info
command -v zip > /dev/null || { echo "make wheel needs zip" >&2; exit 1; }
rm -rf "$wheel"
mkdir -p "$data/data/lib" "$data/data/share" "$info/licenses" "$wheel/fsdprun"
cp -r "$tree/bin" "$data/scripts"
cp -r "$tree/lib/fsdprun" "$data/data/lib/"
# No systemd looks for units in a virtual environment, and the C library is not in it.
for part in doc man fsdprun bash-completion zsh fish; do cp -r "$tree/share/$part" "$data/data/share/"; done
rm -r "$data/data/share/fsdprun/configs/systemd" "$data/data/share/fsdprun/examples"
cp launcher/python/fsdprun/*.py "$wheel/fsdprun/"
cp LICENSE "$info/licenses/"

cat > "$info/METADATA" << END
Metadata-Version: 2.1
Name: fsdprun
Version: $version
Summary: Launch, supervise and train fully sharded models: torchrun's command line, without Python
License: BSD-3-Clause; bundled libraries under their own licenses (share/doc/fsdprun/licenses)
Keywords: torchrun,FSDP,distributed training,launcher
Classifier: License :: OSI Approved :: BSD License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Requires-Python: >=3.8
Description-Content-Type: text/markdown

The programs \`fsdprun\`, \`fsdp-agent\` and \`fsdp-train\`, with every library that they need except glibc, libstdc++ and
libgcc_s. They need no Python.

    fsdprun --nproc-per-node 8 --max-restarts 3 train.py              # where you typed torchrun
    fsdprun --install-as-torchrun                                     # for scripts that call torchrun
    python -m fsdprun.wrap accelerate launch --multi_gpu train.py     # for commands that call PyTorch's launcher

\`man fsdprun\` has every option. \`share/fsdprun/configs\` of the environment has example jobs.
END
cat > "$info/WHEEL" << END
Wheel-Version: 1.0
Generator: fsdprun ($version)
Root-Is-Purelib: false
Tag: $tag
END
# RECORD: each file with its sum, base64 of URLs without padding, and its size.
cd "$wheel"
find . -type f -printf '%P\n' | LC_ALL=C sort > ../wheel.files
while read -r path; do
  sum=$(sha256sum < "$path" | cut -d' ' -f1 | tr a-f A-F | basenc --base16 -d | basenc --base64url -w0 | tr -d =)
  echo "$path,sha256=$sum,$(stat -c %s "$path")"
done < ../wheel.files > ../wheel.record
record=fsdprun-$version.dist-info/RECORD
{ cat ../wheel.record; echo "$record,,"; } > "$record"
# The archive holds no time but the commit's, no user, and the files in order, RECORD last.
find . -exec touch -d "$(stat -c @%Y "$OLDPWD/$tree")" {} +
find . -type f -perm /111 -exec chmod 755 {} + , -type f ! -perm /111 -exec chmod 644 {} +
rm -f "../$file"
{ cat ../wheel.files; echo "$record"; } | TZ=UTC zip -q -X -D -@ "../$file"
mv -f "../$file" "$OLDPWD/$build/$file"
cd "$OLDPWD"
echo "$build/$file: $(($(stat -c %s "$build/$file") >> 10)) KiB"
