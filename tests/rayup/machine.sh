#!/bin/bash
# machine.sh SITE NAME ADDRESS: the first process of a machine, in namespaces of its own: a root
# that lies over this machine's and is written to memory, its own /tmp, /run, /home, /dev and /proc,
# the users plait and eve, and sshd. There is no way out: the machines have no default route. The
# folder SITE/srv is /srv there, to be read only, and SITE/shared is /mnt/shared, the same folder on
# all machines, as of a file server.
set -eu
site=$1 name=$2 address=$3 own=$1/ram/$2
rm -rf "$own" # of a machine of this name that was here before
mkdir -p "$own"/{upper,work,root}
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$site/ram/base:/,upperdir=$own/upper,workdir=$own/work" "$own/root"
cd "$own/root"
for folder in tmp var/tmp run root work home opt mnt srv; do
    mkdir -p $folder
    mount -t tmpfs -o mode=755 tmpfs $folder
done
chmod 1777 tmp var/tmp
chmod 700 root
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do
    touch dev/$device
    mount --bind /dev/$device dev/$device
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o size=4g,mode=1777 tmpfs dev/shm
echo "$name" > etc/hostname
hostname "$name"
printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$name" > etc/hosts # as Debian's installer writes it
echo > etc/resolv.conf
rm -f etc/pip.conf # nothing of the network outside
for user in plait:2001 eve:2002; do
    id=${user#*:} user=${user%:*}
    if ! grep -q "^$user:" etc/passwd; then
        echo "$user:x:$id:$id::/home/$user:/bin/bash" >> etc/passwd
        echo "$user:x:$id:" >> etc/group
        echo "$user:*:19000:0:99999:7:::" >> etc/shadow
    fi
    mkdir -p home/$user/.ssh
    cp etc/skel/.[!.]* home/$user/ 2>/dev/null || true
    chmod 700 home/$user home/$user/.ssh
done
cp "$site/key.pub" home/plait/.ssh/authorized_keys
if [ "$name" = op ]; then cp "$site/key" home/plait/.ssh/plait; fi
chmod 600 home/plait/.ssh/*
for user in plait:2001 eve:2002; do chown -R ${user#*:}:${user#*:} home/${user%:*}; done
mount --bind -o ro "$site/srv" srv
mkdir mnt/shared
mount --bind "$site/shared" mnt/shared
mkdir -p run/old
pivot_root . run/old
cd /
umount -l /run/old
rmdir /run/old
ip link set lo up
while ! ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
# By its address: the others know the way to one that takes the place of another.
ip link set eth0 address "$(printf '02:00:%02x:%02x:%02x:%02x' ${address//./ })"
ip addr add "$address/24" dev eth0
ip link set eth0 up
mkdir -p /run/sshd
rm -f /etc/ssh/ssh_host_*
ssh-keygen -q -A
unset $(env | cut -d= -f1 | grep -vE '^(PATH|HOME|TERM|LANG|SHLVL|PWD|_)$') || true
export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ulimit -n 65536 2>/dev/null || true
if [ "$name" != op ]; then /usr/sbin/sshd -o UsePAM=no; fi
touch /run/machine-is-up
trap : TERM HUP INT
while :; do sleep 1000 & wait $! || true; done
