# Sourced: the libraries that an archive for a machine without our packages brings along.
libraries_of_libc='libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*'
# copy_libraries DIR LEFT_OUT FILE...: copies what FILEs load into DIR, except names that match LEFT_OUT.so
copy_libraries() {
  local dir=$1 left_out=$2; shift 2
  ldd "$@" | awk '$3 ~ /^\// { print $3 }' | sort -u | grep -vE "/($left_out)\.so" | xargs -r cp -nLt "$dir"
}
