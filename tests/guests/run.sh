#!/bin/bash
# Runs the jobs in the folder $1, where their output goes: in a virtual machine, or on a host in a mount namespace of
# its own. Each job has an empty folder of the file system that it asks for, below $2 where no other is meant, and at
# most $3 seconds. Lines of `jobs`: name, file system, user, command, with tabs between them. $4: guest or host.
share=$1 images=$2 seconds=$3 kind=$4
data=/tmp/data
export HOME=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin TMPDIR=$data LANG=C.UTF-8 MEMLITH_TEST_DIR=$data
capabilities=(CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT
  KILL AUDIT_WRITE)

# Leaves an empty folder of file system $1 at $data.
enter() {
  mkdir -p "$data" || return
  case $1 in
    here) ;;
    tmpfs) mount -t tmpfs -o size=1500m tmpfs "$data" ;;
    overlay)
      mkdir -p "$images/lower" "$images/upper" "$images/work" &&
        mount -t overlay -o "lowerdir=$images/lower,upperdir=$images/upper,workdir=$images/work" overlay "$data"
      ;;
    *)
      local force=-f
      if [[ $1 == ext4 ]]; then force=-F; fi
      truncate -s 3G "$images/image" && "mkfs.$1" -q "$force" "$images/image" &&
        mount -o loop "$images/image" "$data"
      ;;
  esac && chmod 1777 "$data"
}

leave() {
  cd /
  if [[ $1 != here ]]; then umount "$data" || umount -l "$data"; fi
  find "$data" /dev/shm -mindepth 1 -maxdepth 1 -exec rm -rf {} + 2>/dev/null
  rm -rf "$images"/*
}

contained() { # FILTER COMMAND
  local cap with=()
  for cap in "${capabilities[@]}"; do with+=(--cap-add "CAP_$cap"); done
  bwrap --bind / / --dev /dev --proc /proc --unshare-pid --unshare-ipc --cap-drop ALL "${with[@]}" \
    --seccomp 9 -- "${@:2}" 9<"$share/$1.bpf"
}

as() { # USER COMMAND
  local ordinary=(setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all --)
  case $1 in
    root) "${@:2}" ;;
    user) "${ordinary[@]}" "${@:2}" ;;
    namespace) "${ordinary[@]}" unshare --user --map-root-user -- "${@:2}" ;;
    refused) bwrap --dev-bind / / --cap-add ALL --seccomp 9 -- "${@:2}" 9<"$share/refused.bpf" ;;
    *) contained "$1" "${@:2}" ;;
  esac
}

chmod 1777 /tmp
if [[ $kind == guest ]]; then
  ulimit -Hn 524288 # as systemd has it
  export MEMLITH_TEST_SLOWNESS=30
fi
uname -rm >"$share/uname"
getconf PAGESIZE >"$share/page-bytes"
if [[ $kind == guest ]]; then echo 0 >/proc/sys/vm/unprivileged_userfaultfd; fi # as kernels have it from 5.11 on
while IFS=$'\t' read -r name fs user command; do
  began=$SECONDS
  if enter "$fs" >"$share/$name.log" 2>&1; then
    cd "$data" || exit
    export MEMLITH_TEST_REPORT=$data/report.json
    export GTEST_OUTPUT=json:$MEMLITH_TEST_REPORT
    as "$user" timeout --kill-after 10 "$seconds" bash -c "$command" >>"$share/$name.log" 2>&1 </dev/null
    status=$?
    if [[ -f $MEMLITH_TEST_REPORT ]]; then cp "$MEMLITH_TEST_REPORT" "$share/$name.json"; fi
  else
    status=no-$fs
  fi
  leave "$fs"
  echo "$name $status $((SECONDS - began))" >>"$share/results"
done <"$share/jobs"
if [[ $kind == guest ]]; then dmesg | grep -E "Oops|BUG:|WARNING:|Call trace" >"$share/kernel-says"; fi
