#!/bin/bash
# base.sh FOLDER: makes FOLDER/base.tar, what a machine has beyond this one: sshd, rsync, ip.
# Call it in mount and PID namespaces of its own: packages are installed into an overlay in memory,
# and the root of this machine is only read.
set -eu
site=$1 ram=$1/ram
packages="openssh-server openssh-client rsync iproute2"
mkdir -p "$ram"
mount --make-rprivate /
mount -t tmpfs -o size=3g tmpfs "$ram"
mkdir -p "$ram"/{upper,work,root}
mount -t overlay overlay -o "lowerdir=/,upperdir=$ram/upper,workdir=$ram/work" "$ram/root"
cd "$ram/root"
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs tmpfs tmp
printf '#!/bin/sh\nexit 101\n' > usr/sbin/policy-rc.d # no service is started
chmod 755 usr/sbin/policy-rc.d
install() { chroot . apt-get install -y --no-install-recommends $packages </dev/null; }
install || { chroot . apt-get update </dev/null && install; }
chroot . apt-get clean
umount -R dev proc tmp
cd /
umount "$ram/root"
rm -rf "$ram"/upper/{root,work,home,run,var/lib/apt/lists}
tar -C "$ram/upper" -cf "$site/base.tar.new" .
mv "$site/base.tar.new" "$site/base.tar"
